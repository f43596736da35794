"""`FakeKube`: a cluster in memory, on virtual time. An API server with the semantics that matter, and what lives on it.

    kube = FakeKube(seed=1)
    server = kube.client()                    # an ApiServer; another one is another operator, or the same after a crash
    inbox = kube.inbox()                      # waiting on it lets virtual time pass
    server.follow([Followed(PODS, Pod)], inbox)
    kube.create(PODS, {...})                  # as somebody else
    kube.advance(10.0)

`kube_http.py` serves the same cluster on loopback, for the real client. `kube_nodes.py` runs its pods. Everything that
is drawn by lot (delays, faults) comes of the seed.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sterna.backends.kubernetes.api.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PRIORITY_CLASSES,
    SERVICES,
    Delta,
    Inbox,
    WriteResult,
)
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_client import FakeClient, Faults
from tests.fakes.kube_requests import Response, Rest
from tests.fakes.kube_rules import FOREGROUND, SERVICE_ACCOUNTS
from tests.fakes.kube_store import Event, Key, Object, Refused, Store, encoded, walk

RESOURCES = (
    *(PODS, NODES, PRIORITY_CLASSES, SERVICES, CONFIG_MAPS, SERVICE_ACCOUNTS, EVENTS, LEASES),
    *(TRAINING_JOBS, TF_JOBS, PYTORCH_JOBS, MPI_JOBS, SHARE_PODS),
)
BEGIN = 1_750_000_000.0
"""When virtual time begins, as seconds since 1970."""

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


class VirtualInbox(Inbox):
    """An inbox whose `wait` advances virtual time."""

    def __init__(self, kube: FakeKube) -> None:
        super().__init__()
        self._kube = kube
        self._came = False

    def put(self, *items: Delta | WriteResult) -> None:
        self._came = True
        super().put(*items)

    def wake(self) -> None:
        self._came = True

    def take(self) -> list[Delta | WriteResult]:
        self._came = False
        return super().take()

    def wait(self, seconds: float | None) -> bool:
        end = self._kube.now + (seconds if seconds is not None else 1e9)
        while not self._came and self._kube.step(end):
            pass
        came, self._came = self._came, False
        return came


@dataclass(order=True, slots=True)
class _Due:
    at: float
    count: int
    act: Callable[[], None]


class FakeKube:
    """A cluster: store, REST, time, and the clients that were made for it."""

    def __init__(self, seed: int = 0, faults: Faults | None = None, resources: Iterable[Resource] = RESOURCES) -> None:
        self.now = BEGIN
        self.luck = random.Random(seed)
        self.faults = faults or Faults()
        self.store = Store()
        self.rest = Rest(self.store, resources, lambda: self.now)
        self.collects_garbage = True
        """As the controller manager does, a moment after the owner has gone."""
        self.fence: Key | None = None
        """The Lease whose holder alone may `send` writes, as the admission policy sees to it."""
        self.store.listeners.append(self._note_end)
        self._dues: list[_Due] = []
        self._count = 0

    # Time.

    def clock(self) -> float:
        return self.now

    def call_at(self, at: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._dues, _Due(max(at, self.now), self._count, act))

    def call_in(self, seconds: float, act: Callable[[], None]) -> None:
        self.call_at(self.now + seconds, act)

    def step(self, end: float) -> bool:
        """The next thing that happens, if it does so until `end`; else time stands there."""
        if not self._dues or self._dues[0].at > end:
            self.now = max(self.now, end)
            return False
        due = heapq.heappop(self._dues)
        self.now = due.at
        due.act()
        return True

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.step(end):
            pass

    # Who talks to it.

    def client(self, may_write: Callable[[], bool] = lambda: True, identity: str = "") -> FakeClient:
        """An ApiServer on virtual time. `close` is a crash: what is under way may still arrive, its answers do not."""
        return FakeClient(self, may_write, identity)

    def is_fenced_out(self, identity: str) -> bool:
        """True if the fence exists and rejects writes of this identity."""
        if self.fence is None:
            return False
        lease = self.store.find(LEASES, self.fence)
        return lease is None or lease["spec"].get("holderIdentity") != identity

    def inbox(self) -> VirtualInbox:
        return VirtualInbox(self)

    def heal(self) -> None:
        """No more faults from now on."""
        self.faults = Faults()

    # As another client: at once, without faults; raises `Refused` if the server rejects it.

    def create(self, resource: Resource, given: Object, namespace: str = "default") -> Object:
        where = given.get("metadata", {}).get("namespace", namespace) if resource.is_namespaced else ""
        return self._do("POST", resource.path(where), given)

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Object:
        return self._do("GET", resource.path(_where(resource, namespace), name))

    def find(self, resource: Resource, name: str, namespace: str = "default") -> Object | None:
        return self.store.find(resource, (_where(resource, namespace), name))

    def items(self, resource: Resource) -> list[Object]:
        """In order of namespace and name."""
        return [each for _, each in sorted(self.store.objects.get(resource, {}).items())]

    def patch(
        self, resource: Resource, name: str, patch: Any, subresource: str = "", namespace: str = "default"
    ) -> Object:
        """A dict merges, a list is a JSON patch."""
        path = resource.path(_where(resource, namespace), name, subresource)
        return self._do("PATCH", path, patch, JSON_PATCH if isinstance(patch, list) else MERGE)

    def delete(self, resource: Resource, name: str, namespace: str = "default", **options: Any) -> Object:
        return self._do("DELETE", resource.path(_where(resource, namespace), name), options)

    def create_namespace(self, name: str) -> None:
        self._do("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def handle(self, method: str, path: str, query: str = "", body: bytes = b"", content_type: str = "") -> Response:
        return self.rest.handle(method, path, query, body, content_type)

    def _do(self, method: str, path: str, document: Any = None, content_type: str = "") -> Object:
        body = encoded(document) if document is not None else b""
        response = self.handle(method, path, "", body, content_type)
        answer: Object = json.loads(response.body)
        if response.status >= 400:
            raise Refused(response.status, answer["reason"], answer["message"])
        return answer

    # What a controller manager does.

    def _note_end(self, resource: Resource, event: Event) -> None:
        if not self.collects_garbage:
            return
        if event.after is None and event.before is not None:
            uid = event.before["metadata"]["uid"]
            self.call_in(0.05, lambda: self._collect(uid))
        elif event.after is not None and FOREGROUND in (event.after["metadata"].get("finalizers") or ()):
            self.call_in(0.05, lambda: self._collect_foreground(resource, event.after))

    def _collect(self, uid: str) -> None:
        """Dependents of an owner that is gone, unless another owner is there."""
        for resource, (namespace, name), each in walk(self.store):
            owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
            if uid in owners and not each["metadata"].get("deletionTimestamp"):
                there = {other["metadata"]["uid"] for _, _, other in walk(self.store)}
                if not there & set(owners):
                    self.delete(resource, name, namespace)

    def _collect_foreground(self, resource: Resource, owner: Object | None) -> None:
        """First the dependents, then the finalizer that waited for them."""
        if owner is None:
            return
        meta = owner["metadata"]
        uid, key = meta["uid"], (meta.get("namespace", ""), meta["name"])
        present = self.store.find(resource, key)
        if present is None or present["metadata"]["uid"] != uid:
            return
        held = [
            (kind, name, namespace, each)
            for kind, (namespace, name), each in walk(self.store)
            if uid in [reference["uid"] for reference in each["metadata"].get("ownerReferences") or ()]
        ]
        for kind, name, namespace, each in held:
            if not each["metadata"].get("deletionTimestamp"):
                self.delete(kind, name, namespace)
        if held:
            self.call_in(0.5, lambda: self._collect_foreground(resource, owner))
            return
        finalizers = [each for each in present["metadata"].get("finalizers", ()) if each != FOREGROUND]
        self.patch(resource, key[1], {"metadata": {"finalizers": finalizers or None}}, namespace=key[0])


def _where(resource: Resource, namespace: str) -> str:
    return namespace if resource.is_namespaced else ""
