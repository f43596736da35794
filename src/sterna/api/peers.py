"""Who is at the other end of a connection: by which way they came, and which user of this machine they are.

On a unix socket the kernel tells. On loopback it is looked up in the kernel's table of connections, where only one that
is established counts: one that was closed is listed as root's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import pwd
import socket
import struct
import sys
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

_ESTABLISHED = "01"
_CREDENTIALS = struct.Struct("3i")


class Way(Enum):
    """How a peer came."""

    SOCKET = "unix socket"
    LOOPBACK = "loopback"
    NETWORK = "network"


@dataclass(frozen=True)
class Peer:
    """The other end of a connection."""

    way: Way
    uid: int | None = None
    """None: not known."""


STRANGER = Peer(Way.NETWORK)


def peer_of(transport: asyncio.Transport) -> Peer:
    """Asked once, when a connection is made."""
    end: socket.socket | None = transport.get_extra_info("socket")
    if end is None:
        return STRANGER
    try:
        if end.family == socket.AF_UNIX:
            data = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return Peer(Way.SOCKET, _CREDENTIALS.unpack(data)[1])
        theirs, ours = end.getpeername(), end.getsockname()
    except OSError:  # gone before we looked
        return STRANGER
    if not (is_loopback(theirs[0]) and is_loopback(ours[0])):
        return STRANGER
    return Peer(Way.LOOPBACK, _owner(theirs[:2], ours[:2]))


def is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _owner(theirs: tuple[str, int], ours: tuple[str, int], tables: Path = Path("/proc/net")) -> int | None:
    """The user whose socket is at `theirs` and connected to `ours`."""
    wanted = [_in_table(*theirs), _in_table(*ours)]
    name = "tcp6" if ":" in theirs[0] else "tcp"
    try:
        lines = (tables / name).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        cells = line.split(None, 8)
        if len(cells) > 7 and cells[1:3] == wanted and cells[3] == _ESTABLISHED:
            return int(cells[7])
    return None


def _in_table(host: str, port: int) -> str:
    """An address as the kernel's table writes it: words of four bytes in the machine's own order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host.partition("%")[0])
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return f"{b''.join(words).hex().upper()}:{port:04X}"


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """A user's name, or its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_uid() -> int:
    return os.getuid()
