"""A minimal HTTP/1.1 client: one request per connection.

Importing the standard library's client (mail headers, certificates) takes as long as the rest of a short command.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from sterna.errors import Retry

_LONGEST_LINE = 1 << 16


class OpenConnection(Protocol):
    """Opens a connection."""

    def __call__(self, timeout_seconds: float | None) -> socket.socket: ...


class Reply:
    """A response whose head has been read; the body may still arrive."""

    def __init__(self, end: socket.socket, file: BinaryIO) -> None:
        self._end, self._file = end, file
        version, _, rest = _line(file).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise Retry("What answers there does not speak HTTP; check the address.")
        self.status = int(rest[:3])
        self.headers: dict[str, str] = {}
        while line := _line(file):
            name, _, value = line.partition(b":")
            self.headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._end.close()

    @property
    def _is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    def read(self) -> bytes:
        """Return the whole body."""
        if self._is_chunked:
            return b"".join(_chunks(self._file))
        text = self._file.read()
        if len(text) < int(self.headers.get("content-length", len(text))):
            raise ConnectionResetError("the answer was cut off")
        return text

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive."""
        if not self._is_chunked:
            yield from self._file
            return
        rest = b""
        for part in _chunks(self._file):
            *whole, rest = (rest + part).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def set_timeout(self, seconds: float) -> None:
        self._end.settimeout(seconds)


def send_request(
    open_connection: OpenConnection,
    timeout_seconds: float,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> Reply:
    """Send a request and read the head of its response; raises `OSError` as it comes."""
    end = open_connection(timeout_seconds)
    try:
        head = [
            f"{method} {path} HTTP/1.1",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if body or method not in ("GET", "DELETE"):
            head.append(f"Content-Length: {len(body)}")
        end.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        return Reply(end, end.makefile("rb"))
    except BaseException:
        end.close()
        raise


def open_socket(path: Path, timeout_seconds: float | None) -> socket.socket:
    """Connect to a unix socket by way of its folder: an address holds 107 bytes, and a path may be longer."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.settimeout(timeout_seconds)
    folder = -1
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        end.connect(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        end.close()
        raise
    finally:
        if folder >= 0:
            os.close(folder)
    return end


def open_address(host: str, port: int, is_secure: bool, timeout_seconds: float | None) -> socket.socket:
    """Connect to a host; TLS trusts the system's certificates, or `$SSL_CERT_FILE`."""
    end = socket.create_connection((host, port), timeout_seconds)
    if not is_secure:
        return end
    import ssl

    return ssl.create_default_context().wrap_socket(end, server_hostname=host)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the chunks of a body with chunked transfer encoding."""
    while True:
        try:
            size = int(_line(file).partition(b";")[0], 16)
        except ValueError:
            raise ConnectionResetError("the answer was cut off") from None
        part = file.read(size)
        if len(part) < size:
            raise ConnectionResetError("the answer was cut off")
        _line(file)
        if not size:
            return
        yield part


def _line(file: BinaryIO) -> bytes:
    line = file.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the answer was cut off")
    return line.rstrip(b"\r\n")
