"""`ApiServer` protocol, and the values that are sent to it and received from it.

The operator runs on a real server (`transport/client.py`) or on one in memory. Watch deltas and write results arrive in
one `Inbox`, in order; only `ask` and the inbox block.
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
    """HTTP verb of a write."""

    CREATE = "POST"
    """Also for subresources: `binding` binds a pod."""
    MERGE = "PATCH"
    """JSON merge patch. It replaces whole lists and does not check the uid: guard it with a resource version."""
    JSON_PATCH = "JSON-PATCH"
    """JSON patch; a `test` operation makes the write fail if the object changed."""
    REPLACE = "PUT"
    DELETE = "DELETE"
    """The body, if any, is `DeleteOptions`."""


class Urgency(IntEnum):
    """Priority of queued writes, lowest value first."""

    RUN = 0
    """Pods, bindings, deletions: whatever starts training or frees capacity."""
    VERDICT = 1
    """Statuses that users wait for: the job cannot run, the job ended."""
    STATUS = 2
    EVENT = 3


class Write(NamedTuple):
    """One write request."""

    verb: Verb
    resource: Resource
    namespace: str
    name: str
    body: bytes = b""
    subresource: str = ""
    urgency: Urgency = Urgency.RUN
    slot: str = ""
    """Writes of one slot are sent one at a time, and a queued one is replaced by a later one; empty for no slot."""
    tag: Any = None
    """Purpose of the write (`write_purpose.py`), returned with the result."""


class WriteResult(NamedTuple):
    """Result of a write or request."""

    write: Write
    status: int
    """HTTP status; 0 if the result is unknown (timeout, connection lost): check before retrying."""
    reason: str = ""
    """Reason of a rejection: `AlreadyExists`, `Conflict`, `NotFound`, .."""
    message: str = ""
    body: bytes = b""
    """The object after the write, or a Status."""

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300


NOT_LEADER = "NotLeader"
"""Reason of a result (403): another replica leads, so the write was not sent."""
SUPERSEDED = "Superseded"
"""Reason of a result (409): a later write of the same slot replaced it, so it was not sent."""
UNREACHABLE = "Unreachable"
"""Reason of a result (503): no connection was available for a while, so the write was not sent."""


class DeltaKind(Enum):
    """Kind of a delta."""

    SEEN = "seen"
    """The object exists as given: new, changed, or unchanged."""
    GONE = "gone"
    """The object was deleted. Given with its last state, or with name and uid only if the deletion was missed."""
    SYNCED = "synced"
    """All objects of the resource were delivered at least once; no object is given."""
    ABSENT = "absent"
    """The server does not serve or allow the resource; no object is given. Objects delivered before are not withdrawn.
    `SYNCED` follows when the resource is served again."""


NO_WRITE = Write(Verb.REPLACE, Resource("", "", "", ""), "", "")
"""The write in the result of `ask`."""


class Delta(NamedTuple):
    """Change of one object or of one resource."""

    change: DeltaKind
    resource: Resource
    object: Any = None
    """Decoded into `Followed.type`."""
    why: str = ""
    """With `ABSENT`: a sentence for the administrator."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A resource to list and watch."""

    resource: Resource
    type: type[Any]
    """The msgspec struct that objects are decoded into."""
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    is_optional: bool = False
    """True if the server may not serve it; then it is retried periodically."""


class Inbox:
    """Queue of deltas and write results. Any thread may put; one takes."""

    def __init__(self) -> None:
        self._items: deque[Delta | WriteResult] = deque()
        self._ready = threading.Condition()
        self._is_woken = False

    def put(self, *items: Delta | WriteResult) -> None:
        with self._ready:
            self._items.extend(items)
            self._ready.notify_all()

    def wake(self) -> None:
        """End a wait early."""
        with self._ready:
            self._is_woken = True
            self._ready.notify_all()

    def take(self) -> list[Delta | WriteResult]:
        """Remove and return all items in order, without waiting."""
        with self._ready:
            items = list(self._items)
            self._items.clear()
            return items

    def wait(self, seconds: float | None) -> bool:
        """Wait for an item or `wake`, at most for `seconds`; return False on timeout."""
        with self._ready:
            came = self._ready.wait_for(lambda: self._items or self._is_woken, seconds)
            self._is_woken = False
            return bool(came)


class ApiServer(Protocol):
    """API server, real or in memory."""

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        """Start to list and watch into the inbox. Called once."""
        ...

    def send(self, writes: Sequence[Write]) -> None:
        """Send writes concurrently, by urgency; the inbox gets one result for each."""
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
        """Send one request and wait for the response, for rare reads and leases; raise `Retry` if unreachable."""
        ...

    def close(self) -> None: ...
