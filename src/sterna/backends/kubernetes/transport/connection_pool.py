"""Kept connections to one server: a request goes out over a free one, and its reply comes back over it.

For `client.py`, which writes and hears thousands of things in seconds: here a write costs half of what it costs by way
of a library for all of HTTP, and a command that asks one question starts without importing one. One request is under
way on a connection at a time. Nothing is sent twice: whether a request whose connection broke may be repeated is for
others to judge. Redirects, cookies and compression are deliberately not known here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, cast
from urllib.parse import quote, urlsplit

from sterna.backends.kubernetes.transport.dial import Way
from sterna.backends.kubernetes.transport.http_parser import GarbledError, Reply, ReplyReader, Stream

_CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 15.0
"""A reply of which nothing has come for so long does not come any more."""
_KEPT_SECONDS = 60.0
"""A connection that was of no use for so long is closed, before somebody on the way forgets it."""
_LOOK_SECONDS = 1.0
"""One look at all connections is cheaper than a timer for each request."""


class NotConnectedError(Exception):
    """There was no connection, so nothing was done."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class NoReplyError(Exception):
    """It was sent, and what became of it is unknown."""


class Request(NamedTuple):
    """What to ask for."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = "application/json"


class WithdrawnError(Exception):
    """By the time that there was a connection it was not to be sent any more."""


Outcome = Reply | NotConnectedError | NoReplyError | WithdrawnError
Then = Callable[[Outcome], None]
"""Told once what became of a request, never before the call that sends it has returned."""


class _Call(NamedTuple):
    request: bytes
    then: Then
    silence_seconds: float
    stream: Stream | None = None
    heard: asyncio.Future[Outcome] | None = None
    """Who waits for it, if anybody does."""
    may_go: Callable[[], bool] = lambda: True
    """Asked at the last moment."""


class _Connection(asyncio.Protocol):
    """One of them; `at` is when something last happened on it."""

    def __init__(self, on_free: Callable[[_Connection], None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._on_free, self._reader = on_free, ReplyReader()
        self._transport: asyncio.Transport | None = None
        self._then: Then | None = None
        self._silence_seconds = SILENCE_SECONDS
        self.at = loop.time()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, call: _Call) -> None:
        assert self._transport is not None
        assert self._then is None, "one request at a time"
        self._then, self._silence_seconds, self.at = call.then, call.silence_seconds, self._loop.time()
        self._reader.stream = call.stream
        self._transport.write(call.request)

    def look(self, now: float) -> None:
        """Whether it is worth keeping."""
        if self._then is None:
            if now - self.at > _KEPT_SECONDS:
                self.give_up("")
        elif now - self.at > self._silence_seconds:
            self.give_up("nothing came for a while")

    def give_up(self, why: str) -> None:
        """Nothing more is expected of it."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.at = self._loop.time()
        if self._then is None:
            self.give_up("")  # nobody asked
            return
        try:
            reply = self._reader.feed(data)
        except GarbledError as error:
            self.give_up(str(error))
            return
        if reply is not None:
            self._finish(reply)

    def connection_lost(self, error: Exception | None) -> None:
        reply = self._reader.end() if error is None else None
        if reply is not None:
            self._finish(reply)
        else:
            self._fail(str(error) if error is not None else "the server closed the connection")
        self._transport = None  # each knows the other: else both would stay until the next full collection

    def _finish(self, reply: Reply) -> None:
        then, self._then = self._then, None
        transport = self._transport
        if transport is not None and (reply.is_last or transport.get_write_buffer_size()):
            transport.abort()  # nothing more comes, or it was answered before all of it was sent
        self._on_free(self)  # before: whoever hears of the reply may have more to send
        if then is not None:
            then(reply)

    def _fail(self, why: str) -> None:
        then, self._then = self._then, None
        self._on_free(self)
        if then is not None:
            then(NoReplyError(why))


class Connections:
    """All connections to one server. Belongs to the loop that it is used in."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, server_name: str = "", proxy: str = "") -> None:
        """`server_name`: what its certificate is made out to, where that is not its address."""
        address = urlsplit(server)
        self._way = Way(address.hostname or "", address.port or (443 if tls else 80), tls, server_name, proxy)
        self._root, self._netloc = address.path.rstrip("/"), address.netloc.rpartition("@")[2]
        self._heads: dict[tuple[str, str], bytes] = {}
        self._headers: dict[str, str] = {}
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def show(self, headers: Mapping[str, str]) -> None:
        """What every request from now on says of us."""
        self._headers = {name: " ".join(value.split()) for name, value in headers.items()}
        self._heads.clear()

    def send(self, request: Request, then: Then, may_go: Callable[[], bool] = lambda: True) -> None:
        """One request that may go now. Should a connection have to be opened for it, `may_go` is asked once more when
        there is one. No task waits for its reply: at a thousand a second those would cost more than what they do."""
        self._send(_Call(self._written(request), then, SILENCE_SECONDS, may_go=may_go))

    async def exchange(self, request: Request, seconds: float) -> Reply:
        """One request that is waited for, so long at most."""
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._send(_Call(self._written(request), partial(_hear, heard), seconds, heard=heard))
        try:
            async with asyncio.timeout(seconds):
                return _succeeded(await heard)
        except TimeoutError:
            raise NoReplyError("it took too long") from None

    async def follow(self, request: Request, stream: Stream, silence_seconds: float) -> Reply:
        """One request whose reply is told as it comes; the reply at its end, or a refusal."""
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._send(_Call(self._written(request), partial(_hear, heard), silence_seconds, stream, heard))
        return _succeeded(await heard)

    def close(self) -> None:
        """Whoever waits for a reply, or asks from now on, hears that none comes."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for opening in self._opening:
            opening.cancel()
        for connection in list(self._all):
            connection.give_up("the connection was closed")
        self._idle.clear()

    async def shut(self) -> None:
        """The same, until nothing is being opened any more."""
        opening = list(self._opening)
        self.close()
        await asyncio.gather(*opening, return_exceptions=True)

    def _send(self, call: _Call) -> None:
        if self._is_closed:
            asyncio.get_running_loop().call_soon(call.then, _closed())
            return
        while self._idle:
            connection = self._idle.pop()  # the one that was of use last, so that what is not needed grows old
            if connection.is_open:
                connection.send(call)
                return
        opening = asyncio.get_running_loop().create_task(self._send_over_another(call))
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, call))

    def _opened(self, call: _Call, opening: asyncio.Task[None]) -> None:
        self._opening.discard(opening)
        if opening.cancelled():  # perhaps before it had begun
            call.then(_closed())

    async def _send_over_another(self, call: _Call) -> None:
        connection = _Connection(self._note_free)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._way.open(connection)
            if not connection.is_open:
                raise ConnectionResetError("the server closed the connection")
        except Exception as error:  # also an address that is none: whoever waits must hear of it
            call.then(NotConnectedError(error))
            return
        self._all.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
        if call.heard is not None and call.heard.done():  # nobody waits any more
            self._idle.append(connection)
        elif not call.may_go():
            self._idle.append(connection)
            call.then(WithdrawnError())
        else:
            connection.send(call)

    def _note_free(self, connection: _Connection) -> None:
        """It is done with its request, or is no more."""
        if not connection.is_open:
            self._all.discard(connection)
        elif connection in self._all:
            self._idle.append(connection)

    def _look(self) -> None:
        """Replies that do not come, and connections that are of no use."""
        loop = asyncio.get_running_loop()
        for connection in list(self._all):
            connection.look(loop.time())
        self._idle = [each for each in self._idle if each.is_open]
        self._timer = loop.call_later(_LOOK_SECONDS, self._look) if self._all else None

    def _written(self, request: Request) -> bytes:
        method, path, query, body, content_type = request
        target = f"{method} {self._root}{quote(path, safe='/:')}{'?' if query else ''}{query}".encode("ascii")
        head = self._heads.get((method, content_type)) or self._head(method, content_type)
        return b"%b%b%d\r\n\r\n%b" % (target, head, len(body), body)

    def _head(self, method: str, content_type: str) -> bytes:
        """All of a request between its target and its length."""
        lines = {"Host": self._netloc, **self._headers, "Content-Type": content_type}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = self._heads[method, content_type] = f" HTTP/1.1\r\n{text}Content-Length: ".encode("latin-1", "replace")
        return head


def _closed() -> NotConnectedError:
    return NotConnectedError(ConnectionAbortedError("the connection was closed"))


def _hear(heard: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not heard.done():  # else nobody waits any more
        heard.set_result(outcome)


def _succeeded(outcome: Outcome) -> Reply:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def unreachable(server: str, error: Exception) -> str:
    """Why a server gives no connection, as a sentence for the person who can mend it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"The certificate of the API server at {server} is not to be trusted"
        return f"{why} ({error}); check certificate-authority and tls-server-name in the kubeconfig."
    if isinstance(error, ssl.SSLError):
        return f"The API server at {server} does not speak TLS with us ({words_of(error)}); check address and port."
    return f"The API server at {server} cannot be reached ({words_of(error)}); check that it runs, and its address."


def words_of(error: Exception) -> str:
    """Of exceptions whose text is empty, the name."""
    return str(getattr(error, "strerror", "") or error) or type(error).__name__
