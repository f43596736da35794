"""Progress sources, found by import: the modules of `sources/`, and those that installed packages announce.

A package announces a source by an entry point of the group `sterna.progress`; loading it must call `register`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points

from sterna.progress import sources
from sterna.progress.source_kind import SourceKind

ENTRY_POINTS = "sterna.progress"

_sources: dict[str, SourceKind] = {}


class _SourceRegistry:
    is_loaded = False


_state = _SourceRegistry()


def register(source: SourceKind) -> SourceKind:
    """Add a source, or replace the one of the same name."""
    _sources[source.name] = source
    return source


def unregister(name: str) -> None:
    _sources.pop(name, None)


def all_sources() -> tuple[SourceKind, ...]:
    _load()
    return tuple(_sources[name] for name in sorted(_sources))


def sources_to_declare() -> tuple[SourceKind, ...]:
    """Sources that a manifest can declare: all but the agent, which needs no parameters."""
    return tuple(source for source in all_sources() if source.name != "agent")


def find_source(name: str) -> SourceKind | None:
    if name not in _sources:
        _load()
    return _sources.get(name)


def discover() -> None:
    """Import every module of `sources/` and every entry point."""
    _state.is_loaded = True
    for module in pkgutil.iter_modules(sources.__path__, f"{sources.__name__}."):
        import_module(module.name)
    for entry_point in entry_points(group=ENTRY_POINTS):
        entry_point.load()


def _load() -> None:
    if not _state.is_loaded:
        discover()
