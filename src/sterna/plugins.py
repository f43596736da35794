"""Plug-ins found by import: the modules of a package of ours, and entry points that installed packages announce.

Loading a module or an entry point must register its plug-ins. Kinds and progress sources are found this way.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


Plugin = TypeVar("Plugin", bound=Named)


class PluginRegistry(Generic[Plugin]):
    """Plug-ins by name, loaded on first use."""

    def __init__(self, package: str, group: str) -> None:
        """`package`: dotted name of the package whose modules are imported; `group`: the entry point group."""
        self._package, self._group = package, group
        self._plugins: dict[str, Plugin] = {}
        self._is_loaded = False

    def register(self, plugin: Plugin) -> Plugin:
        """Add a plug-in, or replace the one of the same name."""
        self._plugins[plugin.name] = plugin
        return plugin

    def unregister(self, name: str) -> None:
        self._plugins.pop(name, None)

    def find(self, name: str) -> Plugin | None:
        if name not in self._plugins:
            self._load()
        return self._plugins.get(name)

    def all(self) -> list[Plugin]:
        self._load()
        return list(self._plugins.values())

    def discover(self) -> None:
        """Import every module of the package and every entry point."""
        self._is_loaded = True  # first: a plug-in may ask for another one while it is imported
        for module in pkgutil.iter_modules(import_module(self._package).__path__, f"{self._package}."):
            if not module.ispkg:
                import_module(module.name)
        for entry_point in entry_points(group=self._group):
            entry_point.load()

    def _load(self) -> None:
        if not self._is_loaded:
            self.discover()
