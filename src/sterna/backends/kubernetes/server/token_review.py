"""Who speaks to the operator's service: tokens of service accounts, made for us, as the API server judges them.

A verdict is kept for a while, so that hundreds of monitors cost a handful of questions a minute.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.monitor_protocol import AUDIENCE
from sterna.backends.kubernetes.api.rbac import TOKEN_REVIEWS
from sterna.backends.kubernetes.api.resources import ApiServer
from sterna.errors import Retry

_GOOD_SECONDS, _BAD_SECONDS = 60.0, 5.0
_MOST_KEPT = 4096
_LONGEST_TOKEN = 1 << 14
_NODE = "authentication.kubernetes.io/node-name"


class Caller(NamedTuple):
    """Whose token it is."""

    name: str
    """`system:serviceaccount:NAMESPACE:NAME`; empty: nobody's that we know."""
    node: str = ""
    """That its pod runs on, where the token says so."""


NOBODY = Caller("")


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Verdict(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] = []


class _Review(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


class Tokens:
    """Judges tokens. May be asked by several threads."""

    def __init__(
        self, server: ApiServer, allowed: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`allowed`: service accounts that may report and ask, as `NAMESPACE/NAME`."""
        self._server, self._clock = server, clock
        self._allowed = frozenset(f"system:serviceaccount:{name.replace('/', ':', 1)}" for name in allowed)
        self._kept: dict[bytes, tuple[float, Caller]] = {}
        self._lock = threading.Lock()

    def is_allowed(self, caller: Caller) -> bool:
        return caller.name in self._allowed

    def known(self, token: str) -> Caller | None:
        """What was found out lately, without asking; None: ask."""
        with self._lock:
            kept = self._kept.get(_digest(token))
        return kept[1] if kept is not None and self._clock() < kept[0] else None

    def caller_of(self, token: str) -> Caller:
        """Whose it is; `Retry` if the API server cannot be asked."""
        if not token or len(token) > _LONGEST_TOKEN:
            return NOBODY
        known = self.known(token)
        if known is not None:
            return known
        caller = self._asked(token)
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[_digest(token)] = (self._clock() + (_GOOD_SECONDS if caller.name else _BAD_SECONDS), caller)
        return caller

    def _asked(self, token: str) -> Caller:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        answer = self._server.ask("POST", TOKEN_REVIEWS.path(), msgspec.json.encode(review))
        if not answer.is_done:
            raise Retry(f"The API server does not judge tokens for us ({answer.message or answer.status}).")
        try:
            verdict = msgspec.json.decode(answer.body, type=_Review).status
        except (msgspec.DecodeError, ValueError):
            raise Retry("The API server's verdict on a token is not understood.") from None
        if not verdict.authenticated or AUDIENCE not in verdict.audiences:
            return NOBODY
        return Caller(verdict.user.username, next(iter(verdict.user.extra.get(_NODE, [])), ""))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
