"""The gate: who may ask at all. Before anything else is looked at, every request passes here.

- On the unix socket and on loopback: the user who started the cluster, and root.
- From any other address: whoever shows the token.
- Never a web page of somebody else: a browser says for which host and from which page it asks, and both must be ours.

Where each job runs as its submitter, other users of this machine are let in too, and `Caller` says who they are; what
they may change is checked where it is changed.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from sterna.api.peers import STRANGER, Peer, Way, is_loopback, user_name
from sterna.api.problem_json import Problem, problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "sterna_token"
_ASKS_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    is_owner: bool
    """May do everything; others may change their own jobs only."""


@dataclass(frozen=True)
class Rules:
    """What the gate goes by."""

    owner_uid: int
    token: str = ""
    """Empty: no token lets anybody in."""
    lets_others_in: bool = False


class Gate:
    """Stands in front of an application."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        try:
            state["caller"] = admitted(self._rules, state.get("peer", STRANGER), Request.of(scope))
        except Problem as problem:
            await problem_response(problem)(scope, receive, send)
            return
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            await self._remembered(scope)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _remembered(self, scope: Scope) -> Response:
        """Keep the token of the address in a cookie, and take it out of the address."""
        answer = RedirectResponse("/", 303)
        is_secure = scope["scheme"] == "https"
        answer.set_cookie(COOKIE, self._rules.token, httponly=True, samesite="strict", secure=is_secure)
        return answer


@dataclass(frozen=True)
class Request:
    """What of a request the gate looks at."""

    method: str
    path: str
    scheme: str
    headers: Mapping[str, str]
    """By their names in small letters."""
    query: str = ""

    @classmethod
    def of(cls, scope: Scope) -> Request:
        query = scope["query_string"].decode("latin-1")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        return cls(scope["method"], scope["path"], scope["scheme"], headers, query)


def admitted(rules: Rules, peer: Peer, request: Request) -> Caller:
    """Who asks; a `Problem` if they may not."""
    if peer.way is not Way.SOCKET:  # no browser reaches a unix socket
        _refuse_other_pages(peer, request)
    if _shows_token(rules, request):
        return Caller(user_name(rules.owner_uid), True)
    if peer.way is Way.NETWORK:
        what = "This address asks for the token: send it as 'Authorization: Bearer TOKEN'; it is in the state folder."
        raise Problem(401, what)
    if peer.uid in (rules.owner_uid, 0) and peer.uid is not None:
        return Caller(user_name(peer.uid), True)
    if rules.lets_others_in and peer.uid is not None:
        return Caller(user_name(peer.uid), False)
    owner = user_name(rules.owner_uid)
    raise Problem(403, f"This cluster belongs to {owner}, and only {owner} may use it; start your own: sterna up.")


def _refuse_other_pages(peer: Peer, request: Request) -> None:
    headers = request.headers
    host = headers.get("host", "")
    if peer.way is Way.LOOPBACK and not is_loopback(_bare(host)):
        raise Problem(403, f"Asked for the host '{host[:80]}', but this is a loopback address; use http://localhost.")
    origin = headers.get("origin")
    if origin is not None and not _is_same(origin, request.scheme, host):
        raise Problem(403, "A page of another site asked; only Sterna's own page may.")
    is_link = request.method == "GET" and request.path == "/" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
        raise Problem(403, "A page of another site asked; only Sterna's own page may.")


def _bare(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_same(origin: str, scheme: str, host: str) -> bool:
    def full(where: str) -> str:
        has_port = where.rpartition("]")[2].count(":")
        return where.lower() if has_port else f"{where.lower()}:{_PORTS[scheme]}"

    other_scheme, _, place = origin.partition("://")
    return other_scheme == scheme and full(place) == full(host)


def _shows_token(rules: Rules, request: Request) -> bool:
    if not rules.token:
        return False
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _equal(shown.strip(), rules.token):
        return True
    if request.path == "/" and request.method in _ASKS_ONLY:
        shown = parse_qs(request.query).get("token", [""])[0]
        if _equal(shown, rules.token):
            return True
    return _equal(_cookie(request.headers.get("cookie", "")), rules.token)


def _cookie(header: str) -> str:
    try:
        kept = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return kept.value if kept else ""


def _equal(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(), token.encode())
