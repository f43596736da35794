"""The REST face of the API server that is not there: a request in, an answer out, at one instant.

Watches are not here: who carries bytes (`kube_http.py`) or virtual time (`kube_client.py`) asks the store for lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from sterna.backends.kubernetes.api.resources import DEFINITIONS, NODES
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube_patches import merged, patched
from tests.fakes.kube_rules import (
    NAMESPACES,
    admitted,
    answers_with_object,
    bound,
    changed,
    check_room,
    deleted,
    has_status,
    is_over,
    needs_version,
)
from tests.fakes.kube_store import (
    Key,
    Object,
    Refused,
    Selection,
    Store,
    copy_of,
    encoded,
    error_line,
    named,
    status_of,
)


class Response(NamedTuple):
    status: int
    body: bytes


class Target(NamedTuple):
    """The resource, namespace, name and subresource of a path."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


class Seen(NamedTuple):
    """A request as permissions speak of it."""

    verb: str
    resource: Resource
    subresource: str


@dataclass(frozen=True)
class Request:
    """A parsed request."""

    method: str
    target: Target
    query: dict[str, str]
    body: bytes
    content_type: str

    @property
    def verb(self) -> str:
        if self.method == "GET":
            return "get" if self.target.name else "watch" if self.query.get("watch") in ("1", "true") else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.method]

    @property
    def seen(self) -> Seen:
        return Seen(self.verb, self.target.resource, self.target.subresource)

    def document(self) -> Any:
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            raise Refused(400, "BadRequest", "the body of the request is not JSON") from None


class Rest:
    """Serves requests from a store. Time and uids come in."""

    def __init__(self, store: Store, resources: Iterable[Resource], now: Callable[[], float]) -> None:
        self.store = store
        self.served = {_path_of(resource): resource for resource in [NAMESPACES, DEFINITIONS, *resources]}
        self.forbidden: Callable[[Seen], bool] = lambda seen: False
        self.seen: set[Seen] = set()
        """Every kind of request that came."""
        self._now = now
        self._uids = 0
        for name in ("default", "kube-system"):
            self.store.commit(NAMESPACES, ("", name), self._new(NAMESPACES, {"metadata": {"name": name}}, ""))

    def handle(self, method: str, path: str, query: str = "", body: bytes = b"", content_type: str = "") -> Response:
        if path == "/version":
            return Response(200, encoded({"major": "1", "minor": "36", "gitVersion": "v1.36.3-fake"}))
        try:
            return self._dispatch(self.request(method, path, query, body, content_type))
        except Refused as refused:
            return Response(refused.status, encoded(status_of(refused)))

    def request(self, method: str, path: str, query: str, body: bytes = b"", content_type: str = "") -> Request:
        """`Refused` where the path leads nowhere or we may not."""
        request = Request(method, self._target(path), dict(parse_qsl(query)), body, content_type)
        self.seen.add(request.seen)
        if self.forbidden(request.seen):
            what = f'cannot {request.verb} resource "{request.target.resource.plural}"'
            raise Refused(403, "Forbidden", f'{named(request.target.resource)} is forbidden: User "fake" {what}')
        return request

    def _dispatch(self, request: Request) -> Response:
        target = request.target
        match request.verb:
            case "get":
                return Response(200, encoded(self.store.get(target.resource, target.key)))
            case "list":
                return self._list(request)
            case "watch":  # what there is now; who wants more carries it
                return Response(200, b"".join(self._lines(request)))
            case "create" if target.subresource:
                return self._create_part(request)
            case "create":
                return self._create(request)
            case "update" | "patch":
                return self._change(request)
            case "delete" if target.name:
                return self._delete(target, request.document())
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _target(self, path: str) -> Target:
        parts = path.strip("/").split("/")
        size = 2 if parts[0] == "api" else 3
        root, rest = tuple(parts[:size]), parts[size:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and (*root, rest[2]) in self.served:
            namespace, rest = rest[1], rest[2:]
        resource = self.served.get((*root, rest[0])) if rest else None
        if resource is None or len(rest) > 3:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        name, subresource = [*rest[1:], "", ""][:2]
        return Target(resource, namespace, name, subresource)

    # Reading.

    def _list(self, request: Request) -> Response:
        target, query = request.target, request.query
        selection = Selection.of(target.namespace, query)
        version, found, token = self.store.page(
            target.resource, selection, int(query.get("limit", 0)), query.get("continue", "")
        )
        meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
        kind = f"{target.resource.kind}List"
        page = {"kind": kind, "apiVersion": target.resource.api_version, "metadata": meta, "items": found}
        return Response(200, encoded(page))

    def _lines(self, request: Request) -> list[bytes]:
        selection = Selection.of(request.target.namespace, request.query)
        try:
            return self.store.since(request.target.resource, selection, int(request.query.get("resourceVersion", 0)))
        except Refused as refused:
            return [error_line(refused)]

    # Writing.

    def _create(self, request: Request) -> Response:
        target, given = request.target, request.document()
        resource = target.resource
        if resource.is_namespaced and self.store.find(NAMESPACES, ("", target.namespace)) is None:
            raise Refused(404, "NotFound", f'namespaces "{target.namespace}" not found')
        each = self._new(resource, given, target.namespace)
        key = (target.namespace, each["metadata"]["name"])
        there = self.store.find(resource, key)
        if there is not None:
            dying = "object is being deleted: " if there["metadata"].get("deletionTimestamp") else ""
            raise Refused(409, "AlreadyExists", f'{dying}{named(resource)} "{key[1]}" already exists')
        if resource == DEFINITIONS:
            self._serve_defined(each)
        return Response(201, encoded(self.store.commit(resource, key, each)))

    def _create_part(self, request: Request) -> Response:
        target, document = request.target, request.document()
        each = self.store.get(target.resource, target.key)
        if target.resource == PODS and target.subresource == "binding":
            self.store.commit(PODS, target.key, bound(each, document, self._now()))
        elif target.resource == PODS and target.subresource == "eviction":
            self._delete(target, document.get("deleteOptions") or {})
        else:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return Response(
            201, encoded({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        )

    def _change(self, request: Request) -> Response:
        target = request.target
        resource, subresource = target.resource, target.subresource
        if subresource not in ("", "status", "resize") or (subresource == "status" and not has_status(resource)):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        before = self.store.get(resource, target.key)
        after = changed(resource, before, self._wanted(request, before), subresource, request.method == "PUT")
        if subresource == "resize":
            check_room(after, self.store.find(NODES, ("", after["spec"].get("nodeName", ""))))
        if is_over(after):
            return Response(200, encoded(self._remove(resource, target.key)))
        if after == before:  # no change, no version, no event
            return Response(200, encoded(before))
        return Response(200, encoded(self.store.commit(resource, target.key, after)))

    def _wanted(self, request: Request, before: Object) -> Object:
        """Return the desired object of a replacement or of a patch on the current one."""
        document = request.document()
        if request.method == "PUT":
            if needs_version(request.target.resource) and not document.get("metadata", {}).get("resourceVersion"):
                raise Refused(
                    422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
                )
            return copy_of(document)
        if request.content_type == "application/json-patch+json":
            return patched(before, document)
        if request.content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            if not isinstance(document, dict):
                raise Refused(400, "BadRequest", "a merge patch is an object")
            result: Object = merged(before, document)
            return result
        raise Refused(
            415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {request.content_type}"
        )

    def _delete(self, target: Target, options: Object) -> Response:
        resource = target.resource
        each = self.store.get(resource, target.key)
        after = deleted(resource, each, options, self._now())
        if after is not None:
            kept = each if after == each else self.store.commit(resource, target.key, after)
            return Response(200, encoded(kept))
        gone = self._remove(resource, target.key)
        if answers_with_object(resource):
            return Response(200, encoded(gone))
        details = {"name": target.name, "kind": resource.plural, "uid": gone["metadata"]["uid"]}
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Response(200, encoded(success))

    def _remove(self, resource: Resource, key: Key) -> Object:
        if resource == DEFINITIONS:
            defined = self._defined(self.store.get(resource, key))
            for each in list(self.store.objects.get(defined, {})):
                self.store.commit(defined, each, None)
            self.served.pop(_path_of(defined), None)
        return self.store.commit(resource, key, None)

    def _new(self, resource: Resource, given: Object, namespace: str) -> Object:
        self._uids += 1
        return admitted(resource, given, namespace, f"00000000-0000-4000-8000-{self._uids:012d}", self._now())

    # Definitions.

    def _serve_defined(self, definition: Object) -> None:
        resource = self._defined(definition)
        self.served[_path_of(resource)] = resource

    def _defined(self, definition: Object) -> Resource:
        spec = definition["spec"]
        names, version = spec["names"], spec["versions"][0]["name"]
        return Resource(spec["group"], version, names["plural"], names["kind"], spec.get("scope") != "Cluster")

    def withdraw(self, resource: Resource) -> None:
        """As if its definition were not installed."""
        self.served.pop(_path_of(resource), None)

    def serve(self, resource: Resource) -> None:
        self.served[_path_of(resource)] = resource


def _path_of(resource: Resource) -> tuple[str, ...]:
    root = ("apis", resource.group) if resource.group else ("api",)
    return (*root, resource.version, resource.plural)
