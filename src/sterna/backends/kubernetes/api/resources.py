"""What the operator needs of an API server, and the values that go to it and come from it.

A protocol, so that the same operator runs on a real server (`client.py`, the only module that talks to one) and on one
in memory. Everything that arrives, changes and answers alike, arrives in one `Inbox`, in order; nothing here blocks but
`ask` and the inbox itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol

from sterna.kinds.resource import Resource

NODES = Resource("", "v1", "nodes", "Node", is_namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)


class Verb(Enum):
    """What a write does."""

    CREATE = "POST"
    """Also of a subresource: `binding` binds a pod."""
    MERGE = "PATCH"
    """A merge patch. It replaces whole lists, and takes any uid: guard it with a resource version."""
    JSON_PATCH = "JSON-PATCH"
    """A list of operations; one that tests something makes the write fail if the world has moved."""
    REPLACE = "PUT"
    DELETE = "DELETE"
    """The body, if any, is DeleteOptions: preconditions, grace, propagation."""


class Urgency(IntEnum):
    """Which writes go first where the server is slower than we are."""

    RUN = 0
    """What makes training run or frees its room: pods, bindings, deletions."""
    VERDICT = 1
    """What somebody waits to read: that a job cannot run, that it ended."""
    STATUS = 2
    EVENT = 3


class Write(NamedTuple):
    """One change to ask for."""

    verb: Verb
    resource: Resource
    namespace: str
    name: str
    body: bytes = b""
    subresource: str = ""
    urgency: Urgency = Urgency.RUN
    slot: str = ""
    """Writes of one slot are sent one at a time, and of those that wait only the latest is; empty: no such bond."""
    tag: Any = None
    """Comes back with the answer; means nothing on the way."""


class WriteResult(NamedTuple):
    """What became of a write."""

    write: Write
    status: int
    """HTTP's; 0: nobody knows whether it was done (no answer, a timeout), so look before doing it again."""
    reason: str = ""
    """The server's word for a refusal: `AlreadyExists`, `Conflict`, `NotFound`, .."""
    message: str = ""
    body: bytes = b""
    """The object as it is after the write, where the server sends one; a Status otherwise."""

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300


NOT_LEADER = "NotLeader"
"""Reason of an answer (403): another operator leads, so the write was not sent."""
SUPERSEDED = "Superseded"
"""Reason of an answer (409): a later write of the same slot took its place, so it was not sent."""
UNREACHABLE = "Unreachable"
"""Reason of an answer (503): no connection was to be had for a while, so the write was not sent."""


class Change(Enum):
    """What is told of an object."""

    SEEN = "seen"
    """It is there, as given: new, changed, or merely seen again."""
    GONE = "gone"
    """It is not there any more. Given as it was at its end, or (it vanished unseen) with no more than name and uid."""
    SYNCED = "synced"
    """All objects of the resource have been told at least once; no object is given."""
    ABSENT = "absent"
    """The server does not know the resource (yet), or does not let us see it; no object is given. What was told before
    is not taken back: it may well be there. `SYNCED` follows when it is seen again."""


NO_WRITE = Write(Verb.REPLACE, Resource("", "", "", ""), "", "")
"""What an answer to `ask` says that it answers."""


class Delta(NamedTuple):
    """News of one object, or of one resource."""

    change: Change
    resource: Resource
    object: Any = None
    """Decoded as the follower asked (`objects.py`)."""
    why: str = ""
    """With `ABSENT`: a sentence for the person who can mend it."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A resource to be listed and watched, for as long as the operator lives."""

    resource: Resource
    type: type[Any]
    """The msgspec struct that objects are decoded into."""
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    is_optional: bool = False
    """The server may not know it; it is looked for again from time to time."""


class Inbox:
    """Where everything arrives. Any thread may put; one takes."""

    def __init__(self) -> None:
        self._items: deque[Delta | WriteResult] = deque()
        self._ready = threading.Condition()
        self._is_woken = False

    def put(self, *items: Delta | WriteResult) -> None:
        with self._ready:
            self._items.extend(items)
            self._ready.notify_all()

    def wake(self) -> None:
        """End a wait though nothing arrived."""
        with self._ready:
            self._is_woken = True
            self._ready.notify_all()

    def take(self) -> list[Delta | WriteResult]:
        """All that arrived, in order, without waiting."""
        with self._ready:
            items = list(self._items)
            self._items.clear()
            return items

    def wait(self, seconds: float | None) -> bool:
        """Until something arrives or somebody wakes it; whether that was so."""
        with self._ready:
            came = self._ready.wait_for(lambda: self._items or self._is_woken, seconds)
            self._is_woken = False
            return bool(came)


class ApiServer(Protocol):
    """A server, or something that behaves like one."""

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        """List and watch from now on; what is seen is put into the inbox. Called once."""
        ...

    def send(self, writes: Sequence[Write]) -> None:
        """Have them done side by side, the urgent first; each is answered once, in the inbox."""
        ...

    def ask(
        self,
        verb: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        content_type: str = "",
        timeout_seconds: float = 30.0,
    ) -> WriteResult:
        """One request, waited for: rare reads, leases. `Retry` if the server cannot be reached."""
        ...

    def close(self) -> None: ...
