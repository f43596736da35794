"""The verbs of a cluster that runs: what command line, REST and page ask of it, and what it answers.

A backend's cluster implements them; the local one and, later, the operator's. Answers are plain structures that turn
into JSON as they are. Times are seconds since 1970. Wrong input raises `UserError`; nothing is stored then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from sterna.model.job import JobSpec


class ReplicaView(msgspec.Struct, omit_defaults=True):
    """One process of a job."""

    name: str
    """`{type}-{index}`."""
    node: str
    state: str
    """`starting`, `running`, `stopping`, `ended`."""
    attempt: int
    pid: int = 0
    exit_code: int | None = None


class JobView(msgspec.Struct):
    """A job as it stands."""

    name: str
    kind: str
    state: str
    """`waiting`, `running`, `stopping`, `completed`, `failed`, `deleting`."""
    reason: str
    """Why it waits or changed, in one sentence."""
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
    """`progressing`, `watching`, `converged`, `unknown`."""
    eta_seconds: float | None = None
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None
    lost_seconds: float = 0.0
    """Work thrown away because a grace ran out or a process died."""
    exit_code: int | None = None
    nodes: list[str] = []
    replicas: list[ReplicaView] = []
    notices: list[str] = []


class NodeView(msgspec.Struct):
    """A node as it stands."""

    name: str
    state: str
    """`ready`, `cordoned`, `draining`."""
    cpus: float
    cpus_free: float
    devices: float
    devices_free: float
    memory_bytes: int
    memory_free_bytes: int
    shared: bool
    control: str
    """What holds jobs to their part of it, in words: `cgroup v2: weight, cpuset, memory`."""
    jobs: list[str] = []


class EventView(msgspec.Struct):
    """Something that happened."""

    number: int
    at: float
    job: str
    kind: str
    """`submitted`, `started`, `stopped`, `resized`, `moved`, `shared`, `saved`, `completed`, `failed`, ..."""
    sentence: str


class PolicyView(msgspec.Struct):
    """The rules in force, each as `name:key=value`."""

    policy: str
    placement: str
    migration: str
    cpu_share: str
    reservation: str
    rate_limit_seconds: float


class ClusterService(Protocol):
    """Operations on a running cluster. An unknown name raises `UserError` with the nearest known one."""

    def create(self, specs: Sequence[JobSpec], key: str = "") -> list[JobView]:
        """Create all jobs or none, durably. A repeated `key` returns the first answer."""
        ...

    def jobs(self) -> list[JobView]: ...

    def job(self, name: str) -> JobView: ...

    def delete(self, names: Sequence[str]) -> list[JobView]: ...

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView: ...

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView: ...

    def nodes(self) -> list[NodeView]: ...

    def cordon(self, node: str, is_open: bool, drain: bool = False) -> NodeView: ...

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]: ...

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
        """Part of a replica's output from `offset` (from the end if negative), and where it ends."""
        ...

    def explain(self, name: str) -> dict[str, object]:
        """The document of `sterna explain`: its story, and the smallest change that would start it."""
        ...

    def rules(self) -> PolicyView: ...

    def set_rules(self, **changes: str) -> PolicyView: ...

    def history(self, name: str) -> list[dict[str, float | int | None]]:
        """Progress reports of a job, oldest first: `at`, `step`, `total`, metrics."""
        ...

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        """Progress from outside: `/monitor`, Kubeflow Trainer's protocol."""
        ...

    def changes(self, after: int) -> Iterator[int]:
        """Blocks until something changed since number `after`; yields the latest number again and again."""
        ...
