"""The HTTP application of a cluster: REST, server-sent events, metrics, dashboard. `serve` runs it for a daemon.

Built from any `ClusterService`; no backend belongs here. Importing this package is cheap; FastAPI is imported at the
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.api.server import Encryption as Encryption
    from sterna.api.server import Server as Server
    from sterna.api.server import serve as serve


def __getattr__(name: str) -> Any:
    if name in ("serve", "Server", "Encryption"):
        from sterna.api import server

        return getattr(server, name)
    raise AttributeError(name)
