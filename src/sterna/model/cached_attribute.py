"""`cached_attribute`: an attribute that is computed when first read.

The standard library's `cached_property` takes a lock on Python 3.11, which costs more than most values cached here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class cached_attribute(Generic[Value]):  # noqa: N801 (used as a decorator, like `property`)
    """Like `functools.cached_property`, without its lock."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> cached_attribute[Value]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...

    def __get__(self, owner: object | None, kind: type) -> Value | cached_attribute[Value]:
        if owner is None:
            return self
        value = self._make(owner)
        owner.__dict__[self._name] = value
        return value
