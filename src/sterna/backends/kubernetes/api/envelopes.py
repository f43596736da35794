"""The envelopes of the API server: refusals, pages of lists, lines of a watch. Only values, for `reflector.py`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")
    """Where the next page begins; empty: this was the last."""


class RawPage(msgspec.Struct):
    """A page of which every object is still as it came."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class Line(msgspec.Struct):
    """One event of a watch, its object as it came: what it means depends on the type."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, gc=False):
    """What the server answers where there is no object to answer with, refusals above all."""

    kind: str = ""
    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


class Refusal(NamedTuple):
    """Why a request was turned down, in the server's words."""

    reason: str
    message: str


LINES = msgspec.json.Decoder(Line)
RAW_PAGES = msgspec.json.Decoder(RawPage)
STATUSES = msgspec.json.Decoder(Status)

_LONGEST_PLAIN_MESSAGE = 300


def refusal_of(body: bytes) -> Refusal:
    """Of an answer that is no success; a proxy before the server may answer with anything."""
    try:
        status = STATUSES.decode(body)
    except msgspec.DecodeError:
        return Refusal("", body[:_LONGEST_PLAIN_MESSAGE].decode("utf-8", "replace").strip())
    return Refusal(status.reason, status.message)
