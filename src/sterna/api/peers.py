"""Who is at the other end of a connection: by which way they came, and which user of this machine they are.

On a unix socket the kernel tells; on loopback it is asked for the owner of the other socket.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from sterna.api.ownership import owner_of

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
    return Peer(Way.LOOPBACK, owner_of(theirs[:2], ours[:2]))


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """A user's name, or its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_uid() -> int:
    return os.getuid()
