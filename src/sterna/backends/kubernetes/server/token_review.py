"""TokenReview: whose token a request carries, as the API server judges it.

Results are cached for a minute, so that hundreds of monitors cost a handful of requests per minute.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.rbac import TOKEN_REVIEWS
from sterna.backends.kubernetes.api.resources import ApiServer
from sterna.errors import Retry

_VALID_TTL_SECONDS, _INVALID_TTL_SECONDS = 60.0, 5.0
_MAX_CACHED = 4096
_MAX_TOKEN_CHARS = 1 << 14
_NODE = "authentication.kubernetes.io/node-name"


class TokenUser(NamedTuple):
    """The user of a token."""

    name: str
    """`system:serviceaccount:NAMESPACE:NAME` for a service account; empty if the token is not valid."""
    node: str = ""
    """Node of the pod that the token is bound to; empty if it is bound to none."""


INVALID_TOKEN = TokenUser("")


class _ReviewedUser(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _ReviewedUser = msgspec.field(default_factory=_ReviewedUser)
    audiences: list[str] = []


class _TokenReview(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class TokenReviewer:
    """Reviews tokens made for one audience. Any thread may call it."""

    def __init__(self, server: ApiServer, audience: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """`audience`: empty for tokens that are valid at the API server itself."""
        self._server, self._audience, self._clock = server, audience, clock
        self._cache: dict[bytes, tuple[float, TokenUser]] = {}
        self._lock = threading.Lock()

    def cached_user(self, token: str) -> TokenUser | None:
        """Return the user from the cache, without I/O; None if the token must be reviewed."""
        with self._lock:
            entry = self._cache.get(_digest(token))
        return entry[1] if entry is not None and self._clock() < entry[0] else None

    def review(self, token: str) -> TokenUser:
        """Return the user of a token; raise `Retry` if the API server cannot be asked."""
        if not token or len(token) > _MAX_TOKEN_CHARS:
            return INVALID_TOKEN
        cached_user = self.cached_user(token)
        if cached_user is not None:
            return cached_user
        user = self._request_review(token)
        ttl_seconds = _VALID_TTL_SECONDS if user.name else _INVALID_TTL_SECONDS
        with self._lock:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[_digest(token)] = (self._clock() + ttl_seconds, user)
        return user

    def _request_review(self, token: str) -> TokenUser:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, **({"audiences": [self._audience]} if self._audience else {})},
        }
        answer = self._server.ask("POST", TOKEN_REVIEWS.path(), msgspec.json.encode(review))
        if not answer.is_done:
            raise Retry(f"The API server does not judge tokens for us ({answer.message or answer.status}).")
        try:
            status = msgspec.json.decode(answer.body, type=_TokenReview).status
        except (msgspec.DecodeError, ValueError):
            raise Retry("The API server's verdict on a token is not understood.") from None
        is_for_audience = not self._audience or self._audience in status.audiences
        if not status.authenticated or not is_for_audience:
            return INVALID_TOKEN
        return TokenUser(status.user.username, next(iter(status.user.extra.get(_NODE, [])), ""))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
