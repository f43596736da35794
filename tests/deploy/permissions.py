"""Requests to an API server as RBAC permissions, to compare them with the granted ones.

Three ways to observe: `of_request` reads a request line, `of_audit` the server's own audit log, and `Recording`
stands between an operator and its server and notes everything on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from sterna.backends.kubernetes.api.rbac import Scope, Use, Who
from sterna.backends.kubernetes.api.resources import ApiServer, Followed, Inbox, Verb, Write, WriteResult

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Asked(NamedTuple):
    """One kind of request, as the authorizer sees it."""

    verb: str
    group: str
    target: str
    """The resource, and its part if it was for a part: `pods/binding`."""


def of_request(method: str, path: str, query: str = "") -> Asked | None:
    """Return the permission that a request line needs; None for paths without a resource (`/readyz`, `/version`)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource, name, part = (*rest, "", "")[:3]
    return Asked(_verb(method, bool(name), query), group, f"{resource}/{part}" if part else resource)


def _verb(method: str, is_named: bool, query: str) -> str:
    if method == "GET" and parse_qs(query).get("watch", ["false"])[0] in ("true", "1"):
        return "watch"
    if method == "GET":
        return "get" if is_named else "list"
    if method == "DELETE" and not is_named:
        return "deletecollection"
    return _VERBS[method]


def of_write(write: Write) -> Asked:
    method = {Verb.MERGE: "PATCH", Verb.JSON_PATCH: "PATCH"}.get(write.verb, write.verb.value)
    target = f"{write.resource.plural}/{write.subresource}" if write.subresource else write.resource.plural
    return Asked(_VERBS[method], write.resource.group, target)


def of_audit(events: Iterable[Mapping[str, Any]], username: str) -> set[Asked]:
    """Return the permissions that one user needed, by the server's audit log of any level."""
    found = set()
    for event in events:
        about = event.get("objectRef") or {}
        if event.get("user", {}).get("username") != username or "resource" not in about:
            continue
        part = about.get("subresource", "")
        target = f"{about['resource']}/{part}" if part else about["resource"]
        found.add(Asked(event["verb"], about.get("apiGroup", ""), target))
    return found


def granted(uses: Iterable[Use], who: Who, scope: Scope | None = None) -> set[Asked]:
    """Return the permissions of one account in a table of uses."""
    return {
        Asked(verb, use.resource.group, use.target)
        for use in uses
        if use.who is who and scope in (None, use.scope)
        for verb in use.verbs
    }


class Recording:
    """A server that notes what is asked of the one behind it."""

    def __init__(self, behind: ApiServer) -> None:
        self._behind = behind
        self.asked: set[Asked] = set()

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        for each in followed:
            self.asked |= {Asked(verb, each.resource.group, each.resource.plural) for verb in ("list", "watch")}
        self._behind.follow(followed, inbox)

    def send(self, writes: Sequence[Write]) -> None:
        self.asked |= {of_write(write) for write in writes}
        self._behind.send(writes)

    def ask(
        self,
        verb: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        content_type: str = "",
        timeout_seconds: float = 30.0,
    ) -> WriteResult:
        asked = of_request(verb, path, query)
        self.asked |= {asked} if asked else set()
        return self._behind.ask(verb, path, body, query, content_type, timeout_seconds)

    def close(self) -> None:
        self._behind.close()
