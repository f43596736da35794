"""Kinds of jobs, found by import: the modules of this package, and those that installed packages announce.

A package announces a kind by an entry point of the group `sterna.kinds`; loading it must call `register`.
"""

from __future__ import annotations

from sterna.errors import Bug
from sterna.kinds.kind import Kind
from sterna.kinds.labels import GROUP
from sterna.kinds.resource import Resource
from sterna.plugins import PluginRegistry

ENTRY_POINTS = "sterna.kinds"

_registry: PluginRegistry[Kind] = PluginRegistry("sterna.kinds", ENTRY_POINTS)
register, unregister, find_kind, discover = (
    _registry.register,
    _registry.unregister,
    _registry.find,
    _registry.discover,
)


def all_kinds() -> tuple[Kind, ...]:
    """Sterna's own first, then by name."""
    return tuple(sorted(_registry.all(), key=lambda kind: (kind.resource.group != GROUP, kind.name)))


def job_kinds() -> tuple[Kind, ...]:
    """Kinds of which jobs are made."""
    return tuple(kind for kind in all_kinds() if kind.parse is not None)


def custom_kinds() -> tuple[Kind, ...]:
    """Kinds of jobs that need a CustomResourceDefinition."""
    return tuple(kind for kind in job_kinds() if kind.resource.group)


def kind_of(resource: Resource) -> Kind:
    kind = find_kind(resource.kind)
    if kind is None:
        raise Bug(f"no kind is registered for {resource.plural}")
    return kind
