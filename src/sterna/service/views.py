"""Values that a `ClusterService` returns. Each is the JSON object of the REST API of the same name.

Times are seconds since 1970. `msgspec.json` encodes and decodes them as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ReplicaView(msgspec.Struct, omit_defaults=True):
    """One process of a job."""

    name: str
    """`{type}-{index}`."""
    node: str
    state: str
    """`starting`, `running`, `stopping` or `ended`."""
    attempt: int
    pid: int = 0
    exit_code: int | None = None


class JobView(msgspec.Struct):
    """A job and its current state."""

    name: str
    kind: str
    state: str
    """`waiting`, `running`, `stopping`, `completed`, `failed` or `deleting`."""
    reason: str
    """Why the job waits or changed last, in one sentence."""
    workers: int
    minimum: int
    maximum: int
    request: int
    priority: int
    category: str
    user: str
    submitted_at: float
    first_started_at: float | None = None
    ended_at: float | None = None
    waited_seconds: float = 0.0
    ran_seconds: float = 0.0
    cpu_seconds: float = 0.0
    attempt: int = 0
    restarts: int = 0
    moves: int = 0
    cpu_share: float = 1.0
    step: int | None = None
    total: int | None = None
    metric: str = ""
    value: float | None = None
    growth: str = "unknown"
    """`progressing`, `watching`, `converged` or `unknown`."""
    eta_seconds: float | None = None
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None
    lost_seconds: float = 0.0
    """Work lost because a grace period expired or a process died."""
    exit_code: int | None = None
    nodes: list[str] = []
    replicas: list[ReplicaView] = []
    notices: list[str] = []
    namespace: str = ""
    """Kubernetes only, as are `uid` and schedulers other than `local`."""
    uid: str = ""
    scheduler: str = "local"
    """The GPU type that the job asks for, as in Voda's tables, else the name of the backend."""

    @property
    def identity(self) -> str:
        """The uid where there is one: in a Kubernetes cluster a name may be used again."""
        return self.uid or self.name


class NodeView(msgspec.Struct):
    """A node and its free capacity."""

    name: str
    state: str
    """`ready`, `cordoned`, `draining` or `not ready`."""
    cpus: float
    cpus_free: float
    devices: float
    devices_free: float
    memory_bytes: int
    memory_free_bytes: int
    shared: bool
    control: str
    """Mechanism that confines jobs to their part of the node: `cgroup v2: weight, cpuset, memory`."""
    jobs: list[str] = []


class EventView(msgspec.Struct):
    """One event of the cluster."""

    number: int
    at: float
    job: str
    kind: str
    """`submitted`, `started`, `stopped`, `resized`, `moved`, `shared`, `saved`, `completed`, `failed`, ..."""
    sentence: str


class PolicyView(msgspec.Struct, omit_defaults=True):
    """The rules in force, each as `name:key=value`."""

    policy: str
    placement: str
    migration: str
    cpu_share: str
    reservation: str
    rate_limit_seconds: float
    policy_for: str = ""
    """Policies of GPU types, as `TYPE=POLICY` separated by spaces; set by the operator alone."""


class ProgressView(msgspec.Struct):
    """One progress report of a job."""

    at: float
    attempt: int = 0
    step: int | None = None
    total: int | None = None
    metrics: dict[str, float | None] = {}


class ExplainedEvent(msgspec.Struct, omit_defaults=True):
    """One event in an explanation of a job."""

    at_s: float
    """Seconds since the journal's start or, without a journal, since the job was submitted."""
    event: str
    sentence: str
    round: int | None = None
    wait_s: float | None = None
    """Length of the wait that the sentence is about."""


class StartingChange(msgspec.Struct, omit_defaults=True):
    """A change that would start a waiting job."""

    sentence: str
    change: str = ""
    amount: float | list[str] = 0


class Explanation(msgspec.Struct, omit_defaults=True):
    """The document of `sterna explain`."""

    job: str
    policy: str
    placement_rule: str
    round: int | None
    """None: the cluster keeps no rounds."""
    at_s: float
    state: str
    """`waits`, `runs`, `stopped` or `ended`."""
    events: list[ExplainedEvent]
    changes: list[StartingChange]
    """The smallest single changes that would start the job, if it waits."""
    notices: list[str] = []
    started_at: float | None = None
    """Time since 1970 from which `at_s` counts; None: the clock of a simulation."""


class LogPart(NamedTuple):
    """Part of a replica's output."""

    text: bytes
    end: int
    """Offset of the byte after it."""
