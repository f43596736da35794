"""Envelopes of the API server: list pages, watch events, Status responses."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")
    """Continue token of the next page; empty on the last one."""


class RawPage(msgspec.Struct):
    """List page with undecoded objects."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct):
    """One watch event with its undecoded object, whose type depends on `type`."""

    type: str
    object: msgspec.Raw


class ApiStatus(msgspec.Struct, gc=False):
    """Kubernetes `Status`: the response body of a rejection."""

    kind: str = ""
    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


class Rejection(NamedTuple):
    """Reason and message of a rejected request."""

    reason: str
    message: str


LINES = msgspec.json.Decoder(WatchLine)
RAW_PAGES = msgspec.json.Decoder(RawPage)
STATUSES = msgspec.json.Decoder(ApiStatus)

_MAX_PLAIN_MESSAGE = 300


def parse_rejection(body: bytes) -> Rejection:
    """Parse the body of an error response; a proxy in front of the server may send any text."""
    try:
        status = STATUSES.decode(body)
    except msgspec.DecodeError:
        return Rejection("", body[:_MAX_PLAIN_MESSAGE].decode("utf-8", "replace").strip())
    return Rejection(status.reason, status.message)
