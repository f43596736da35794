"""REST, server-sent events, metrics and the page of a running cluster. The way in is `serve`.

Importing this package is cheap; what it needs is imported when it is first used.
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
