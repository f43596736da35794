"""TLS on a connection that somebody else has opened: a transport to whoever speaks, a protocol to whoever carries.

For `ways.py`. asyncio has one of its own, which can be paused, shut down in good order and changed over while it runs;
here one request or one reply is under way at a time, none of that is needed, and an operator that writes and hears a
thousand things in a second feels the difference. Whether a certificate is to be trusted is OpenSSL's to say, by the
context that was made for it.
"""

from __future__ import annotations

import asyncio
import ssl

_BUFFER_BYTES = 2**18
_RECORD_BYTES = 2**14
"""More than a record holds is never given at once."""


class Encrypted(asyncio.Transport, asyncio.BufferedProtocol):
    """Between a transport and a protocol, which hears of it once both sides have agreed (`agree`)."""

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__()
        self._protocol = protocol
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=server_name)
        self._buffer: memoryview | None = None
        """Made when something comes: most of what this takes, and a server that is not there sends nothing."""
        self._transport: asyncio.Transport | None = None
        self._agreed: asyncio.Future[None] | None = None
        self._is_agreed = False
        self._error: Exception | None = None

    async def agree(self, transport: asyncio.Transport) -> None:
        """Shake hands over a transport whose protocol this is; `OSError` where that cannot be."""
        if transport.is_closing():
            raise _closed()
        self._transport, self._agreed = transport, asyncio.get_running_loop().create_future()
        try:
            self._shake_hands(self._agreed)
            await self._agreed
        except BaseException:
            transport.abort()
            raise

    def _shake_hands(self, agreed: asyncio.Future[None]) -> None:
        """As far as that goes with what has come."""
        error: Exception | None = None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as refused:
            error = refused
        self._flush()  # also what tells the other side why not
        if agreed.done():  # nobody waits for it any more
            return
        if error is not None:
            agreed.set_exception(error)
            return
        self._is_agreed = True
        self._protocol.connection_made(self)
        agreed.set_result(None)

    def _flush(self) -> None:
        if self._to_send.pending and self._transport is not None:
            self._transport.write(self._to_send.read())

    # What whoever carries tells.

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self._buffer is not None
        self._received.write(self._buffer[:nbytes])
        if self._is_agreed:
            self._read()
        elif self._agreed is not None:
            self._shake_hands(self._agreed)
            if self._is_agreed:
                self._read()

    def _read(self) -> None:
        parts: list[bytes] = []
        try:
            while self._received.pending:  # asking without need would cost an exception each time
                part = self._tls.read(_RECORD_BYTES)
                if not part:  # the other side has said that it ends
                    self.abort()
                    break
                parts.append(part)
        except ssl.SSLWantReadError:  # the rest of a record is yet to come
            pass
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()
        if parts:
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.abort()

    def eof_received(self) -> None:
        """An end that the other side did not announce: somebody between may have cut off what it said."""
        self._error = self._error or _closed()

    def connection_lost(self, error: Exception | None) -> None:
        error = self._error or error
        if self._is_agreed:
            self._protocol.connection_lost(error)
        elif self._agreed is not None and not self._agreed.done():
            self._agreed.set_exception(error or _closed())

    # What whoever speaks asks for.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._flush()

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """At once. Whoever speaks hears of the end later, after what has come."""
        if self._transport is not None:
            self._transport.abort()


def _closed() -> ConnectionResetError:
    return ConnectionResetError("the server closed the connection")
