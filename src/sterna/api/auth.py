"""Authentication: every request passes `AuthMiddleware` before anything else looks at it.

An `Authenticator` returns the caller or raises a `Problem`:

- `LocalAuthenticator`, for a daemon. On the unix socket and on loopback: the user who started the cluster, and root;
  from any other address: callers with the token. Where each job runs as its submitter, other users of the machine are
  let in, too; what they may change is checked where it is changed.
- `BearerAuthenticator`, for an operator: callers whose bearer token a verifier knows.

A web page of another site is always rejected: a browser names the host and the page that it asks from.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from sterna.api.peers import UNKNOWN_PEER, Peer, Transport, is_loopback, user_name
from sterna.api.problem_json import Problem, problem_response
from sterna.errors import Retry

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "sterna_token"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request."""

    name: str
    is_owner: bool
    """May do everything that the cluster lets it do; other callers may change their own jobs only."""
    token: str = field(default="", repr=False)
    """Set by `BearerAuthenticator`, for clusters that act with the caller's own credentials."""


@dataclass(frozen=True)
class RequestHead:
    """The parts of a request that authentication looks at."""

    method: str
    path: str
    scheme: str
    headers: Mapping[str, str]
    """By lower-case name."""
    query: str = ""

    @classmethod
    def of(cls, scope: Scope) -> RequestHead:
        query = scope["query_string"].decode("latin-1")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        return cls(scope["method"], scope["path"], scope["scheme"], headers, query)


class Authenticator(Protocol):
    """Finds out who sent a request."""

    async def authenticate(self, request: RequestHead, peer: Peer) -> Caller:
        """Return the caller; raise `Problem` with status 401 or 403 if the request is rejected."""
        ...


class AuthMiddleware:
    """Rejects unauthenticated requests; the others carry their caller in `request.state.caller`."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, public_paths: Collection[str] = ()) -> None:
        """`public_paths`: answered without authentication, such as probes of the kubelet."""
        self._app, self._authenticator, self._public_paths = app, authenticator, frozenset(public_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        if scope["path"] not in self._public_paths:
            request = RequestHead.of(scope)
            try:
                peer = state.get("peer", UNKNOWN_PEER)
                state["caller"] = await self._authenticator.authenticate(request, peer)
            except Problem as problem:
                await problem_response(problem)(scope, receive, send)
                return
            token = _query_token(request)
            if token:
                await _store_in_cookie(token, scope["scheme"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _store_in_cookie(token: str, scheme: str) -> Response:
    """Move the token of the address into a cookie, so that it is in no history and no log."""
    response = RedirectResponse("/", 303)
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scheme == "https")
    return response


@dataclass(frozen=True)
class LocalAuthenticator:
    """Authenticates by the peer's user id or by the token of the state folder."""

    owner_uid: int
    token: str = ""
    """Empty: no token is accepted."""
    allows_other_users: bool = False

    async def authenticate(self, request: RequestHead, peer: Peer) -> Caller:
        return self.identify(request, peer)

    def identify(self, request: RequestHead, peer: Peer) -> Caller:
        if peer.transport is not Transport.SOCKET:  # no browser reaches a unix socket
            reject_other_sites(request, peer)
        if self.token and any(_is_equal(token, self.token) for token in tokens_of(request)):
            return Caller(user_name(self.owner_uid), True)
        if peer.transport is Transport.NETWORK:
            raise Problem(
                401,
                "This address asks for the token: send it as 'Authorization: Bearer TOKEN'; it is in the state folder.",
            )
        if peer.uid in (self.owner_uid, 0) and peer.uid is not None:
            return Caller(user_name(peer.uid), True)
        if self.allows_other_users and peer.uid is not None:
            return Caller(user_name(peer.uid), False)
        owner = user_name(self.owner_uid)
        raise Problem(403, f"This cluster belongs to {owner}, and only {owner} may use it; start your own: sterna up.")


@dataclass(frozen=True)
class BearerAuthenticator:
    """Authenticates by bearer tokens; `verify` may block, and returns None for a token that it does not accept."""

    verify: Callable[[str], Caller | None]

    async def authenticate(self, request: RequestHead, peer: Peer) -> Caller:
        reject_other_sites(request, Peer(Transport.NETWORK))
        for token in tokens_of(request):
            try:
                caller = await run_in_threadpool(self.verify, token)
            except Retry as error:
                raise Problem(503, str(error)) from None
            if caller is not None:
                return caller
        raise Problem(401, "This address asks for a token: send it as 'Authorization: Bearer TOKEN'.")


def tokens_of(request: RequestHead) -> list[str]:
    """Return the tokens of a request: of its header, of the page's address, of its cookie."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    bearer = shown.strip() if scheme.lower() == "bearer" else ""
    return [token for token in (bearer, _query_token(request), _cookie_token(request)) if token]


def _query_token(request: RequestHead) -> str:
    if request.path != "/" or request.method not in _SAFE_METHODS:
        return ""
    return parse_qs(request.query).get("token", [""])[0]


def _cookie_token(request: RequestHead) -> str:
    try:
        cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def reject_other_sites(request: RequestHead, peer: Peer) -> None:
    """Raise `Problem` for requests that a web page of another site sent, and for DNS rebinding on loopback."""
    headers = request.headers
    host = headers.get("host", "")
    if peer.transport is Transport.LOOPBACK and not is_loopback(_without_port(host)):
        raise Problem(403, f"Asked for the host '{host[:80]}', but this is a loopback address; use http://localhost.")
    origin = headers.get("origin")
    if origin is not None and not _is_same_origin(origin, request.scheme, host):
        raise Problem(403, "A page of another site asked; only Sterna's own page may.")
    is_link = request.method == "GET" and request.path == "/" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
        raise Problem(403, "A page of another site asked; only Sterna's own page may.")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_same_origin(origin: str, scheme: str, host: str) -> bool:
    def with_port(address: str) -> str:
        has_port = address.rpartition("]")[2].count(":")
        return address.lower() if has_port else f"{address.lower()}:{_PORTS[scheme]}"

    other_scheme, _, address = origin.partition("://")
    return other_scheme == scheme and with_port(address) == with_port(host)


def _is_equal(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(), token.encode())
