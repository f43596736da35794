"""Messages between the members of an elastic group: a fixed header and a body, over TCP.

Any failure of a link raises `ConnectionError`, and its group regroups. Blocking calls end when the process is asked to
stop. Messages are not encrypted: members run on one machine or in one trusted network, and a peer without the group's
key is rejected.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

_HEADER = struct.Struct("!4sBIqQ")
_MAGIC = b"tern"
_TIMEOUT_SECONDS = 1.0
_MOST_CONTROL_BYTES = 1 << 20


class MessageKind(IntEnum):
    """Type of a message."""

    HELLO = 1
    """Request to join, with identity and step."""
    JOINING = 2
    """Reply of a peer that is joining, too."""
    WELCOME = 3
    """Admission from this step on; the state follows."""
    STATE = 4
    FETCH = 5
    """Request for a state that is ahead."""
    PART = 6
    """A member's part of a sum."""
    SUM = 7
    REGROUP = 8
    """The group has changed: repeat the step with this rank and size."""
    REMOVED = 9
    """The receiver is no longer a member."""


class Message(NamedTuple):
    kind: int
    epoch: int
    """Number of regroupings; distinguishes parts of an aborted sum from those of the next."""
    step: int
    body: bytearray

    def document(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError as error:
            raise ConnectionError("not understood") from error
        if not isinstance(found, dict):
            raise ConnectionError("not understood")
        return found


class Link:
    """One connection between two members."""

    def __init__(self, connection: socket.socket, is_stopping: Callable[[], bool]) -> None:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._is_stopping = is_stopping

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, kind: MessageKind, *parts: Any, epoch: int = 0, step: int = 0) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        header = _HEADER.pack(_MAGIC, kind, epoch, step, sum(len(view) for view in views))
        for view in (memoryview(header), *views):
            while len(view):
                try:
                    view = view[self._connection.send(view) :]
                except TimeoutError:
                    self._raise_if_stopping()
                except OSError as error:
                    raise ConnectionError(str(error)) from error

    def send_document(self, kind: MessageKind, document: dict[str, Any], epoch: int = 0, step: int = 0) -> None:
        self.send(kind, json.dumps(document).encode(), epoch=epoch, step=step)

    def receive(self, most_bytes: int = _MOST_CONTROL_BYTES, is_unknown_peer: bool = False) -> Message:
        """Receive a whole message. With `is_unknown_peer` a timeout ends the connection at once."""
        magic, kind, epoch, step, size = _HEADER.unpack(self._exactly(_HEADER.size, is_unknown_peer))
        if magic != _MAGIC or size > max(most_bytes, _MOST_CONTROL_BYTES):
            raise ConnectionError("not understood")
        return Message(kind, epoch, step, self._exactly(size, is_unknown_peer))

    def _exactly(self, size: int, is_unknown_peer: bool) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            try:
                got = self._connection.recv_into(view)
            except TimeoutError:
                if is_unknown_peer:
                    raise ConnectionError("nothing came") from None
                self._raise_if_stopping()
                continue
            except OSError as error:
                raise ConnectionError(str(error)) from error
            if not got:
                raise ConnectionError("the other side is gone")
            view = view[got:]
        return data

    def is_gone(self) -> bool:
        """Return True if the peer has closed the connection and nothing is left to read."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(0):
            return False
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()

    def _raise_if_stopping(self) -> None:
        if self._is_stopping():
            raise ConnectionError("this process was asked to stop")


def listen(address: str) -> socket.socket:
    """Open a non-blocking listening socket."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server((host, int(port)), backlog=128)
    listener.setblocking(False)
    return listener


def connect(address: str, is_stopping: Callable[[], bool]) -> Link | None:
    """Connect to a member; None if it does not listen."""
    host, _, port = address.rpartition(":")
    try:
        return Link(socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS), is_stopping)
    except (OSError, ValueError):
        return None


def accept(listener: socket.socket, is_stopping: Callable[[], bool]) -> Link | None:
    try:
        return Link(listener.accept()[0], is_stopping)
    except OSError:
        return None


def group_key(folder: str) -> str:
    """Return the secret of a group: a file readable by its user only, in the shared folder, created by the first
    member."""
    path = os.path.join(folder, ".group.key")
    if not os.path.exists(path):
        partial = f"{path}.{secrets.token_hex(4)}"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(16))
        with suppress(FileExistsError):
            os.link(partial, path)
        os.unlink(partial)
    with open(path, encoding="ascii") as file:
        return file.read()


def is_key(offered: object, key: str) -> bool:
    return hmac.compare_digest(str(offered).encode(), key.encode())
