"""Replies of HTTP/1.1, put together from bytes that are cut anywhere. No I/O.

For `connections.py`, which has one request under way on a connection at a time: what comes beyond the one reply that is
expected is refused. The reading itself is httptools'. Nothing is unpacked: we ask for plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MOST_HEAD_BYTES = 2**16
_ANNOUNCING = frozenset({b"content-length", b"transfer-encoding"})
_BODILESS = frozenset({204, 304})


class GarbledError(Exception):
    """This is no reply of HTTP/1.1."""


class Reply(NamedTuple):
    """All of one answer."""

    status: int
    body: bytes
    retry_after: float = 0.0
    is_last: bool = False
    """Nothing more comes over this connection."""


class Stream(NamedTuple):
    """Who is told of the body of a success piece by piece, because it may never end."""

    opened: Callable[[], None]
    take: Callable[[bytes], bool]
    """Whether to go on."""


class ReplyReader:
    """The reply that is expected next on one connection."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        """Of the next reply, if it is to be told as it comes."""
        self._parser = HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._status = self._head_bytes = 0
        self._retry_after = 0.0
        self._is_announced = self._is_opened = self._is_over = self._is_last = False
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> Reply | None:
        """What came; the reply, if that was the end of it."""
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise GarbledError(f"it is no reply of HTTP ({error})") from None
        if not self._status and self._head_bytes > _MOST_HEAD_BYTES:
            raise GarbledError("its head does not end")
        if self.stream is not None and self._status == 200 and not self._told(self.stream):
            return self._finished(is_last=True)  # what would still come is of no use
        return self._finished(self._is_last) if self._is_over else None

    def _told(self, stream: Stream) -> bool:
        """What there is of the body; whether to go on."""
        if not self._is_opened:
            self._is_opened = True
            stream.opened()
        piece = b"".join(self._parts)
        self._parts.clear()
        return not piece or stream.take(piece)

    def end(self) -> Reply | None:
        """The connection has ended; the reply, if that is how it ends."""
        return self._finished(is_last=True) if self._status and not self._is_announced else None

    def _finished(self, is_last: bool) -> Reply:
        reply = Reply(self._status, b"".join(self._parts), self._retry_after, is_last)
        self.stream = None
        self._begin()
        return reply

    # What the parser tells. An error that is raised here reaches `feed` as one of the parser's.

    def on_message_begin(self) -> None:
        if self._is_over:
            raise GarbledError("more came than was announced")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _ANNOUNCING:
            self._is_announced = True
        elif name == b"retry-after" and value.isdigit():
            self._retry_after = float(value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # the reply itself is yet to come
            return
        self._status = status
        self._is_announced |= status in _BODILESS

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._is_over, self._is_last = self._status >= 200, not self._parser.should_keep_alive()
