"""Where the contract of an API server is tried: the one in memory (directly and over HTTP), and a real one.

A real one is named by `STERNA_TEST_KUBECONFIG`; every test works in a namespace of its own there, and leaves it empty.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sterna.backends.kubernetes.api.resources import (
    DEFINITIONS,
    ApiServer,
    Delta,
    DeltaKind,
    Followed,
    Inbox,
    Write,
    WriteResult,
)
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access, access_of
from sterna.kinds.resource import Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_http import HttpKube

VARIABLE = "STERNA_TEST_KUBECONFIG"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
WIDGETS = Resource("contract.sterna.dev", "v1", "widgets", "Widget")
PATIENCE_SECONDS = 30.0

Object = dict[str, Any]


@dataclass
class Ground:
    """A server, a namespace of our own on it, and an inbox that something may be followed into."""

    server: ApiServer
    inbox: Inbox
    namespace: str
    came: list[Delta | WriteResult] = field(default_factory=list)

    # Requests, as a test writes them.

    def ask(self, verb: str, path: str, document: Any = None, content_type: str = "", query: str = "") -> WriteResult:
        body = json.dumps(document).encode() if document is not None else b""
        return self.server.ask(verb, path, body, query, content_type)

    def create(self, resource: Resource, document: Object, subresource: str = "") -> WriteResult:
        name = document["metadata"]["name"] if subresource else ""
        whole = {"kind": resource.kind, "apiVersion": resource.api_version, **document}
        return self.ask("POST", resource.path(self._where(resource), name, subresource), whole)

    def made(self, resource: Resource, document: Object) -> Object:
        answer = self.create(resource, document)
        assert answer.is_done, answer
        return shown(answer)

    def get(self, resource: Resource, name: str) -> WriteResult:
        return self.ask("GET", resource.path(self._where(resource), name))

    def patch(self, resource: Resource, name: str, patch: Any, subresource: str = "") -> WriteResult:
        path = resource.path(self._where(resource), name, subresource)
        return self.ask("PATCH", path, patch, JSON_PATCH if isinstance(patch, list) else MERGE)

    def replace(self, resource: Resource, document: Object, subresource: str = "") -> WriteResult:
        whole = {"kind": resource.kind, "apiVersion": resource.api_version, **document}
        path = resource.path(self._where(resource), document["metadata"]["name"], subresource)
        return self.ask("PUT", path, whole)

    def delete(self, resource: Resource, name: str, **options: Any) -> WriteResult:
        return self.ask("DELETE", resource.path(self._where(resource), name), options)

    def _where(self, resource: Resource) -> str:
        return self.namespace if resource.is_namespaced else ""

    # What comes by itself.

    def follow(self, *followed: Followed) -> None:
        self.server.follow(followed, self.inbox)

    def send(self, *writes: Write) -> list[WriteResult]:
        """All answers, in the order of the writes."""
        self.came += self.inbox.take()
        begin = len(self.came)
        self.server.send(writes)
        found: dict[int, WriteResult] = {}

        def answered() -> bool:
            found.update({id(each.write): each for each in self.came[begin:] if isinstance(each, WriteResult)})
            return all(id(write) in found for write in writes)

        self.until(answered)
        return [found[id(write)] for write in writes]

    def until(self, fact: Callable[[], bool]) -> None:
        for _ in range(2000):
            self.came += self.inbox.take()
            if fact():
                return
            assert self.inbox.wait(PATIENCE_SECONDS), f"nothing more came after {self.came[-5:]}"
        raise AssertionError("much came, but not that")

    def deltas(self, change: DeltaKind, name: str = "") -> list[Delta]:
        found = [each for each in self.came if isinstance(each, Delta) and each.change is change]
        return [each for each in found if not name or each.object.metadata.name == name]


def shown(answer: WriteResult) -> Object:
    found: Object = json.loads(answer.body)
    return found


@contextmanager
def direct() -> Iterator[Ground]:
    kube = FakeKube()
    yield Ground(kube.client(), kube.inbox(), _namespace(kube))


@contextmanager
def http() -> Iterator[Ground]:
    kube = FakeKube()
    namespace = _namespace(kube)
    with HttpKube(kube) as server:
        client = Client(Access(server.server))
        try:
            yield Ground(client, Inbox(), namespace)
        finally:
            client.close()


@contextmanager
def real() -> Iterator[Ground]:
    client = Client(access_of(os.environ[VARIABLE]))
    ground = Ground(client, Inbox(), f"contract-{uuid.uuid4().hex[:8]}")
    try:
        assert ground.ask("POST", "/api/v1/namespaces", {"metadata": {"name": ground.namespace}}).is_done
        yield ground
        for resource in ("pods", "services", "configmaps"):
            ground.ask("DELETE", f"/api/v1/namespaces/{ground.namespace}/{resource}", {"gracePeriodSeconds": 0})
    finally:
        ground.ask("DELETE", f"/api/v1/namespaces/{ground.namespace}")
        client.close()


def _namespace(kube: FakeKube) -> str:
    kube.create_namespace("contract")
    return "contract"


def define(ground: Ground, *resources: Resource) -> None:
    """Define custom kinds with a status and arbitrary fields; returns when they are served."""
    for resource in resources:
        ground.create(DEFINITIONS, _definition(resource))
    for resource in resources:
        for _ in range(200):
            if ground.ask("GET", resource.path(ground.namespace)).is_done:
                break
            ground.inbox.wait(0.05)


def _definition(resource: Resource) -> Object:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
        "subresources": {"status": {}},
    }
    names = {"plural": resource.plural, "kind": resource.kind, "singular": resource.kind.lower()}
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def a_pod(name: str, node: str = "", **more: Any) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": "example.org/image", **more.pop("container", {})}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, **more.pop("metadata", {})}, "spec": spec | more}
