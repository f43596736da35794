"""The other end of a connection: its transport, and the user of this machine that owns it.

On a unix socket the kernel passes the user; on loopback it is asked for the owner of the other socket.
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

from sterna.api.ownership import find_owner

_CREDENTIALS = struct.Struct("3i")


class Transport(Enum):
    """Kind of connection."""

    SOCKET = "unix socket"
    LOOPBACK = "loopback"
    NETWORK = "network"


@dataclass(frozen=True)
class Peer:
    """The other end of a connection."""

    transport: Transport
    uid: int | None = None
    """None: not known."""


UNKNOWN_PEER = Peer(Transport.NETWORK)


def peer_of(transport: asyncio.Transport) -> Peer:
    """Identify the peer of a new connection."""
    end: socket.socket | None = transport.get_extra_info("socket")
    if end is None:
        return UNKNOWN_PEER
    try:
        if end.family == socket.AF_UNIX:
            data = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return Peer(Transport.SOCKET, _CREDENTIALS.unpack(data)[1])
        theirs, ours = end.getpeername(), end.getsockname()
    except OSError:  # closed before it could be asked
        return UNKNOWN_PEER
    if not (is_loopback(theirs[0]) and is_loopback(ours[0])):
        return UNKNOWN_PEER
    return Peer(Transport.LOOPBACK, find_owner(theirs[:2], ours[:2]))


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
    """Return the name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_uid() -> int:
    return os.getuid()
