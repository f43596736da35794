"""Progress sources, found by import: the modules of `sources/`, and those that installed packages announce.

A package announces a source by an entry point of the group `sterna.progress`; loading it must call `register`.
"""

from __future__ import annotations

from sterna.plugins import PluginRegistry
from sterna.progress.source_kind import SourceKind

ENTRY_POINTS = "sterna.progress"

_registry: PluginRegistry[SourceKind] = PluginRegistry("sterna.progress.sources", ENTRY_POINTS)
register, unregister, find_source, discover = (
    _registry.register,
    _registry.unregister,
    _registry.find,
    _registry.discover,
)


def all_sources() -> tuple[SourceKind, ...]:
    return tuple(sorted(_registry.all(), key=lambda source: source.name))


def sources_to_declare() -> tuple[SourceKind, ...]:
    """Sources that a manifest can declare: all but the agent, which needs no parameters."""
    return tuple(source for source in all_sources() if source.name != "agent")
