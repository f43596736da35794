"""How a connection to a server comes about: straight, or through a proxy; with TLS or, on loopback, without.

For `connections.py`. A proxy is asked for a tunnel, so that it sees nothing of what passes; environment variables are
deliberately not looked at, because a kubeconfig says which proxy to take.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from sterna.backends.kubernetes.transport.tls import Encrypted

_SCHEMES = {"http": 80, "https": 443}
_NEXT_SECONDS = 0.25
"""Of several addresses of one name, the next is tried after so long: the first may be one that nobody answers at."""


@dataclass(frozen=True)
class Way:
    """To one server."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str = ""
    """What its certificate is made out to, where that is not its address."""
    proxy: str = ""

    async def open(self, protocol: asyncio.Protocol) -> None:
        """`OSError` where that cannot be."""
        loop = asyncio.get_running_loop()
        tls = Encrypted(protocol, self.tls, self.server_name or self.host) if self.tls is not None else None
        if not self.proxy:
            delay = _next_seconds(self.host)
            transport, _ = await loop.create_connection(
                lambda: tls or protocol, self.host, self.port, happy_eyeballs_delay=delay
            )
        else:
            transport = await self._tunnel(loop)
            transport.set_protocol(tls or protocol)
            if tls is None:
                protocol.connection_made(transport)
        if tls is not None:
            await tls.agree(transport)

    async def _tunnel(self, loop: asyncio.AbstractEventLoop) -> asyncio.Transport:
        proxy = urlsplit(self.proxy)
        if proxy.scheme not in _SCHEMES or not proxy.hostname:
            raise OSError(f"proxy-url {proxy.scheme}://{proxy.hostname or ''} is not one of http:// or https://")
        is_encrypted = True if proxy.scheme == "https" else None
        port = proxy.port or _SCHEMES[proxy.scheme]
        transport, agreement = await loop.create_connection(
            _Agreement, proxy.hostname, port, ssl=is_encrypted, happy_eyeballs_delay=_next_seconds(proxy.hostname)
        )
        try:
            transport.write(self._call(unquote(proxy.username or ""), unquote(proxy.password or "")))
            head = await agreement.heard
            if head[9:10] != b"2":
                raise ConnectionRefusedError(f"the proxy answers {head[9:12].decode('ascii', 'replace')}")
        except BaseException:
            transport.abort()
            raise
        return transport

    def _call(self, user: str, password: str) -> bytes:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        header = f"Proxy-Authorization: Basic {login}\r\n" if login else ""
        return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{header}\r\n".encode("latin-1", "replace")


def _next_seconds(host: str) -> float | None:
    """When to try the next address of a host; an address itself has no next."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _NEXT_SECONDS
    return None


class _Agreement(asyncio.Protocol):
    """What a proxy says to a call for a tunnel."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head and not self.heard.done():
            self.heard.set_result(self._head)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.heard.done():
            self.heard.set_exception(ConnectionResetError("the proxy closed the connection"))
