"""Kinds of jobs, found by import: the modules of this package, and those that installed packages announce.

A package announces a kind by an entry point of the group `sterna.kinds`; loading it must call `register`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points

import sterna.kinds
from sterna.errors import Bug
from sterna.kinds.kind import Kind
from sterna.kinds.labels import GROUP
from sterna.kinds.resource import Resource

ENTRY_POINTS = "sterna.kinds"

_kinds: dict[str, Kind] = {}


class _KindRegistry:
    is_loaded = False


_state = _KindRegistry()


def register(kind: Kind) -> Kind:
    """Add a kind, or replace the one of the same name."""
    _kinds[kind.name] = kind
    return kind


def unregister(name: str) -> None:
    _kinds.pop(name, None)


def all_kinds() -> tuple[Kind, ...]:
    """Sterna's own first, then by name."""
    _load()
    return tuple(sorted(_kinds.values(), key=lambda kind: (kind.resource.group != GROUP, kind.name)))


def job_kinds() -> tuple[Kind, ...]:
    """Kinds of which jobs are made."""
    return tuple(kind for kind in all_kinds() if kind.parse is not None)


def custom_kinds() -> tuple[Kind, ...]:
    """Kinds of jobs that need a CustomResourceDefinition."""
    return tuple(kind for kind in job_kinds() if kind.resource.group)


def find_kind(name: str) -> Kind | None:
    if name not in _kinds:
        _load()
    return _kinds.get(name)


def kind_of(resource: Resource) -> Kind:
    kind = find_kind(resource.kind)
    if kind is None:
        raise Bug(f"no kind is registered for {resource.plural}")
    return kind


def discover() -> None:
    """Import every module of this package and every entry point; modules that are imported already stay as they are."""
    _state.is_loaded = True
    for module in pkgutil.iter_modules(sterna.kinds.__path__, "sterna.kinds."):
        if not module.ispkg:
            import_module(module.name)
    for entry_point in entry_points(group=ENTRY_POINTS):
        entry_point.load()


def _load() -> None:
    if not _state.is_loaded:
        discover()
