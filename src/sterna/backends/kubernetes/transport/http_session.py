"""HTTP requests to one API server through aiohttp, with errors that say whether a request was sent.

For `client.py`. A write may be repeated only if it certainly never left this process, so every failure is either
`NotConnectedError` (not sent) or `NoReplyError` (sent, result unknown). aiohttp would repeat a `PUT` or `DELETE` whose
connection broke; `_track` hides such errors from it. Redirects, cookies and compression are off, and a proxy is used
only if the kubeconfig names one.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

import sterna
from sterna.backends.kubernetes.transport.credentials import tls_context
from sterna.backends.kubernetes.transport.kubeconfig import Access

_CONNECT_SECONDS = 10.0
"""Timeout for name resolution, all addresses of the server, the proxy and the TLS handshake together."""
_KEEP_ALIVE_SECONDS = 60.0
"""Idle connections are closed after this time, before a firewall on the way drops them silently."""
_LARGE_BODY_BYTES = 2**20
"""aiohttp warns about longer `bytes` bodies; as a file they are sent in pieces."""


class NotConnectedError(Exception):
    """No connection could be opened: the request was not sent."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class NoReplyError(Exception):
    """The request was sent, at least in part, and no complete reply came: its effect is unknown."""


class WithdrawnError(Exception):
    """`may_send` returned False once the connection was open: the request was not sent."""


class HttpRequest(NamedTuple):
    """One request; `path` is not yet percent-encoded, `query` is."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = "application/json"


class HttpReply(NamedTuple):
    """A complete reply."""

    status: int
    body: bytes
    retry_after: float = 0.0
    """Seconds, from the `Retry-After` header; 0 if there is none."""


class StreamHandler(NamedTuple):
    """Callbacks for the body of a successful reply that is consumed while it arrives."""

    on_open: Callable[[], None]
    on_data: Callable[[bytes], bool]
    """Returns False to end the stream."""


class HttpSession:
    """Pooled connections to one server. Use it only inside the event loop that called `open`."""

    def __init__(self, access: Access) -> None:
        self._access, self._tls = access, tls_context(access)
        self._root = access.server.rstrip("/")
        self._authorization = ""
        self._session: aiohttp.ClientSession | None = None

    def authorize(self, header: str) -> None:
        """Set the value of the `Authorization` header of all later requests; empty for none."""
        self._authorization = " ".join(header.split())

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=self._tls if self._tls is not None else True,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            resolver=aiohttp.ThreadedResolver(),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"sterna/{sterna.__version__}",
            },
            auto_decompress=False,
            request_class=_TrackedRequest,
        )

    async def close(self) -> None:
        """Abort all requests and close all connections."""
        if self._session is not None:
            await self._session.close()

    async def exchange(
        self,
        request: HttpRequest,
        total_seconds: float,
        silence_seconds: float | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> HttpReply:
        """Send `request` and read the whole reply.

        `silence_seconds` bounds the time without any data from the server; `may_send` is called last before sending.
        """
        timeout = aiohttp.ClientTimeout(total=total_seconds, connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        try:
            async with self._request(request, timeout, may_send) as response:
                return await _read_reply(response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _translate(error, is_sent=not isinstance(error, aiohttp.InvalidURL)) from None

    async def stream(self, request: HttpRequest, handler: StreamHandler, silence_seconds: float) -> HttpReply:
        """Send `request` and pass the body of a 200 to `handler` as it arrives; other replies are returned whole."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        try:
            async with self._request(request, timeout, None) as response:
                if response.status != 200:
                    return await _read_reply(response)
                handler.on_open()
                async for data in response.content.iter_any():
                    if not handler.on_data(data):
                        break
                return HttpReply(200, b"")
        except (aiohttp.ClientError, OSError) as error:
            raise _translate(error, is_sent=not isinstance(error, aiohttp.InvalidURL)) from None

    def _request(
        self, request: HttpRequest, timeout: aiohttp.ClientTimeout, may_send: Callable[[], bool] | None
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None or self._session.closed:
            raise NotConnectedError(ConnectionAbortedError("the connection was closed"))
        method, path, query, body, content_type = request
        headers = {"Content-Type": content_type}
        if self._authorization:
            headers["Authorization"] = self._authorization
        address = f"{self._root}{quote(path, safe='/:')}{'?' if query else ''}{query}"
        return self._session.request(
            method,
            URL(address, encoded=True),
            data=body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body),
            headers=headers,
            allow_redirects=False,
            timeout=timeout,
            proxy=self._access.proxy or None,
            server_hostname=self._access.server_name or None,
            middlewares=(_track(may_send),),
        )


class _TrackedRequest(aiohttp.ClientRequest):
    """Records whether it was sent; asks `may_send` when its connection is open."""

    may_send: Callable[[], bool] | None = None
    is_sent = False

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if self.may_send is not None and not self.may_send():
            raise WithdrawnError
        self.is_sent = True
        return await super().send(conn)


def _track(may_send: Callable[[], bool] | None) -> aiohttp.ClientMiddlewareType:
    """Middleware that turns aiohttp's errors into ours, which aiohttp does not retry."""

    async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        assert isinstance(request, _TrackedRequest)
        request.may_send = may_send
        try:
            return await handler(request)
        except WithdrawnError:
            raise
        except Exception as error:
            raise _translate(error, request.is_sent) from None

    return middleware


async def _read_reply(response: aiohttp.ClientResponse) -> HttpReply:
    retry_after = response.headers.get("Retry-After", "")
    return HttpReply(response.status, await response.read(), float(retry_after) if retry_after.isdigit() else 0.0)


def _translate(error: Exception, is_sent: bool) -> NoReplyError | NotConnectedError:
    """Our error for one of aiohttp; of a failed connection the error of ssl or the socket that aiohttp wraps."""
    if is_sent:
        return NoReplyError(describe(error))
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NotConnectedError(error.certificate_error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return NotConnectedError(ConnectionRefusedError(f"the proxy answers {error.status}"))
    return NotConnectedError(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)


def describe_unreachable(server: str, error: Exception) -> str:
    """Say in one sentence why `server` gives no connection, for the person who can repair it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"The certificate of the API server at {server} is not to be trusted"
        return f"{why} ({error}); check certificate-authority and tls-server-name in the kubeconfig."
    if isinstance(error, ssl.SSLError):
        return f"The API server at {server} does not speak TLS with us ({describe(error)}); check address and port."
    return f"The API server at {server} cannot be reached ({describe(error)}); check that it runs, and its address."


def describe(error: Exception) -> str:
    """The text of `error`, or its class name if it has none."""
    return str(getattr(error, "strerror", "") or error) or type(error).__name__
