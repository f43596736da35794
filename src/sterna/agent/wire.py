"""Messages between the members of an elastic group: a fixed header and bytes, over TCP on addresses they were given.

A link that fails in any way raises `ConnectionError`, and its group forms anew. Nothing here waits for ever on behalf
of a process that was asked to stop. No encryption: members sit on one machine or in one trusted network, and whoever
does not know the group's key is not listened to.
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


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    """I would like to take part; this is who I am, and my step."""
    JOINING = 2
    """So would I; let us see who leads."""
    WELCOME = 3
    """You take part from this step on; the state follows."""
    STATE = 4
    FETCH = 5
    """Send me your state, it is ahead of mine."""
    PART = 6
    """My part of a sum."""
    SUM = 7
    REGROUP = 8
    """The group has changed: do this step again, with this rank and size."""
    REMOVED = 9
    """You take part no longer."""


class Message(NamedTuple):
    kind: int
    epoch: int
    """Counts the regroupings, so that parts of a sum that was given up are told from those of the next."""
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

    def __init__(self, connection: socket.socket, gives_up: Callable[[], bool]) -> None:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._gives_up = gives_up

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, kind: Kind, *parts: Any, epoch: int = 0, step: int = 0) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        header = _HEADER.pack(_MAGIC, kind, epoch, step, sum(len(view) for view in views))
        for view in (memoryview(header), *views):
            while len(view):
                try:
                    view = view[self._connection.send(view) :]
                except TimeoutError:
                    self._check_patience()
                except OSError as error:
                    raise ConnectionError(str(error)) from error

    def send_document(self, kind: Kind, document: dict[str, Any], epoch: int = 0, step: int = 0) -> None:
        self.send(kind, json.dumps(document).encode(), epoch=epoch, step=step)

    def receive(self, most_bytes: int = _MOST_CONTROL_BYTES, is_brief: bool = False) -> Message:
        """The next message, whole. `is_brief`: whoever is not known yet gets no patience."""
        magic, kind, epoch, step, size = _HEADER.unpack(self._exactly(_HEADER.size, is_brief))
        if magic != _MAGIC or size > max(most_bytes, _MOST_CONTROL_BYTES):
            raise ConnectionError("not understood")
        return Message(kind, epoch, step, self._exactly(size, is_brief))

    def _exactly(self, size: int, is_brief: bool) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            try:
                got = self._connection.recv_into(view)
            except TimeoutError:
                if is_brief:
                    raise ConnectionError("nothing came") from None
                self._check_patience()
                continue
            except OSError as error:
                raise ConnectionError(str(error)) from error
            if not got:
                raise ConnectionError("the other side is gone")
            view = view[got:]
        return data

    def is_gone(self) -> bool:
        """Has the other side hung up, with nothing left to read?"""
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

    def _check_patience(self) -> None:
        if self._gives_up():
            raise ConnectionError("this process was asked to stop")


def listening(address: str) -> socket.socket:
    """A socket that others can call; calls wait in it until they are answered."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server((host, int(port)), backlog=128)
    listener.setblocking(False)
    return listener


def called(address: str, gives_up: Callable[[], bool]) -> Link | None:
    """A link to whoever listens there; None if nobody does."""
    host, _, port = address.rpartition(":")
    try:
        return Link(socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS), gives_up)
    except (OSError, ValueError):
        return None


def accepted(listener: socket.socket, gives_up: Callable[[], bool]) -> Link | None:
    try:
        return Link(listener.accept()[0], gives_up)
    except OSError:
        return None


def group_key(folder: str) -> str:
    """The secret of a group, in a file that only its user can read, in a folder that all members share; made by who
    comes first."""
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
