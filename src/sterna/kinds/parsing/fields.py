"""Decode parts of a manifest into msgspec structs, and say in one sentence what is wrong with a part that does not fit.

Decoding checks the fields that Sterna reads and carries all others along: the API server checks pods when they are
created. Where pods are not created, a `FieldReader` also refuses unknown fields and notes those that have no effect.
A field with nothing after the colon counts as absent, as in Kubernetes.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from sterna.errors import UserError, did_you_mean
from sterna.kinds.parsing.documents import FieldPath

T = TypeVar("T")

_WORDS: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_MAPPING = "a mapping of names to values"
_LONGEST_SHOWN = 40
_PATH = re.compile(r"((?:apiVersion|kind|metadata|spec)(?:[\w/\[\]-]|\.(?=\w))*)(?: has no field '(.+?)')?")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Fields(msgspec.Struct):
    """One level of a manifest."""

    ignored: ClassVar[frozenset[str]] = frozenset()
    """Fields that have no effect where pods are not created; the user gets a notice there."""


class FieldReader:
    """Decodes the parts of one manifest and collects notices for its user."""

    def __init__(self, runs_images: bool) -> None:
        self.runs_images = runs_images
        """False where the command runs on this machine as it is: unknown fields are refused, ignored ones noted."""
        self.notices: list[str] = []

    def note(self, sentence: str) -> None:
        if not self.runs_images and sentence not in self.notices:
            self.notices.append(sentence)

    def decode(self, data: Any, type_: type[T], place: str, is_strict: bool = False) -> T:
        """Decode JSON, or values made of it; `place` is its path in the object. `is_strict`: refuse unknown fields."""
        if is_strict or not self.runs_images:
            data = without_nulls(_plain(data, place))
            self._check_names(data, type_, place)
        return decode_fields(data, type_, place)

    def _check_names(self, value: Any, type_: Any, place: str) -> None:
        for option in _options(type_):
            if _is_struct(option) and isinstance(value, Mapping):
                self._check_struct(value, option, place)
            elif get_origin(option) is list and isinstance(value, list):
                for index, each in enumerate(value):
                    self._check_names(each, get_args(option)[0], f"{place}[{index}]")
            elif get_origin(option) is dict and isinstance(value, Mapping):
                for key, each in value.items():
                    self._check_names(each, get_args(option)[1], join_path(place, key))

    def _check_struct(self, value: Mapping[str, Any], type_: Any, place: str) -> None:
        known = _field_types(type_)
        for key, each in value.items():
            if key in getattr(type_, "ignored", ()) and not self.runs_images:
                self.note(f"'{key}' has no meaning here and is left out.")
            elif key not in known:
                raise UserError(f"{place or 'the manifest'} has no field '{key}'; {did_you_mean(str(key), known)}")
            else:
                self._check_names(each, known[key], join_path(place, key))


def decode_fields(data: Any, type_: type[T], place: str) -> T:
    """Decode JSON, or values made of it, whatever other fields there are; `place` is its path in the object."""
    try:
        if isinstance(data, bytes | msgspec.Raw):
            return msgspec.json.decode(data, type=type_)
        return msgspec.convert(data, type_)
    except msgspec.ValidationError:
        pass
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
        raise _unreadable(place) from None
    plain = without_nulls(_plain(data, place))
    try:
        return msgspec.json.decode(msgspec.json.encode(plain), type=type_)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
        raise UserError(_mistake(plain, type_, place) or str(_unreadable(place))) from None


def expectation_error(place: str, wanted: str, found: object) -> UserError:
    return UserError(f"{place}: expected {wanted}, found {format_value(found)}.")


def join_path(place: str, key: str) -> str:
    return f"{place}.{key}" if place else str(key)


def without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def format_value(value: object) -> str:
    """A value as its writer would recognise it, cut if it is long."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text[:_LONGEST_SHOWN]}{'..' if len(text) > _LONGEST_SHOWN else ''}'"


def place_named_in(sentence: str) -> FieldPath:
    """Path of the field that an error sentence begins with; empty if it begins otherwise."""
    match = _PATH.match(sentence)
    if match is None:
        return ()
    steps = [int(index) if index else name for name, index in _STEP.findall(match[1])]
    return (*steps, match[2]) if match[2] else tuple(steps)


def _plain(data: Any, place: str) -> Any:
    try:
        return msgspec.json.decode(data) if isinstance(data, bytes | msgspec.Raw) else data
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise _unreadable(place) from None


def _unreadable(place: str) -> UserError:
    return UserError(f"{place} cannot be read; check what was submitted.")


@cache
def _field_types(type_: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(type_)}


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _options(type_: Any) -> tuple[Any, ...]:
    """The alternatives of a type, without None."""
    if get_origin(type_) is Annotated:
        return _options(get_args(type_)[0])
    if get_origin(type_) in (Union, types.UnionType):
        return tuple(option for each in get_args(type_) if each is not type(None) for option in _options(each))
    return (type_,)


def _mistake(value: Any, type_: Any, place: str) -> str:
    """Describe the first value that does not fit; empty if none is found."""
    options = _options(type_)
    fitting = [option for option in options if _has_shape(value, option)]
    if not fitting:
        wanted = " or ".join(dict.fromkeys(_describe_type(option) for option in options))
        if wanted == "text" and isinstance(value, int | float):
            wanted = "text; put quotes around it"
        return str(expectation_error(place, wanted, value))
    bound = next((found for meta in _metas(type_) if (found := _broken_bound(value, meta))), "")
    return str(expectation_error(place, bound, value)) if bound else _mistake_inside(value, fitting[0], place)


def _mistake_inside(value: Any, type_: Any, place: str) -> str:
    inner: Iterable[tuple[Any, Any, str]] = ()
    if _is_struct(type_):
        for field in msgspec.structs.fields(type_):
            if field.required and field.encode_name not in value:
                return f"{join_path(place, field.encode_name)} is missing; add it."
        known = _field_types(type_)
        inner = ((each, known[key], join_path(place, key)) for key, each in value.items() if key in known)
    elif get_origin(type_) is dict:
        inner = ((each, get_args(type_)[1], join_path(place, key)) for key, each in value.items())
    elif get_origin(type_) is list:
        inner = ((each, get_args(type_)[0], f"{place}[{index}]") for index, each in enumerate(value))
    return next((found for each in inner if (found := _mistake(*each))), "")


def _metas(type_: Any) -> list[msgspec.Meta]:
    if get_origin(type_) in (Union, types.UnionType):
        return [meta for each in get_args(type_) for meta in _metas(each)]
    return [each for each in get_args(type_)[1:] if isinstance(each, msgspec.Meta)] if _is_annotated(type_) else []


def _is_annotated(type_: Any) -> bool:
    return get_origin(type_) is Annotated


def _has_shape(value: Any, type_: Any) -> bool:
    if type_ is Any or type_ is msgspec.Raw:
        return True
    if get_origin(type_) is Literal:
        return value in get_args(type_)
    if _is_struct(type_) or get_origin(type_) is dict:
        return isinstance(value, Mapping)
    if get_origin(type_) is list:
        return isinstance(value, list)
    if type_ is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))


def _describe_type(type_: Any) -> str:
    if get_origin(type_) is Literal:
        names = [str(each) for each in get_args(type_) if each != ""]
        return f"one of {', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
    if get_origin(type_) is list:
        return "a list"
    return _WORDS.get(type_, _MAPPING)


def _broken_bound(value: Any, meta: msgspec.Meta) -> str:
    if meta.min_length and isinstance(value, str | list) and len(value) < meta.min_length:
        return "a list that is not empty" if isinstance(value, list) else "text that is not empty"
    if isinstance(value, int | float):
        if meta.ge is not None and value < meta.ge:
            return f"at least {meta.ge}"
        if meta.gt is not None and value <= meta.gt:
            return f"more than {meta.gt}"
        if meta.le is not None and value > meta.le:
            return f"at most {meta.le}"
    return ""
