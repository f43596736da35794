"""`ClusterService`: what commands, REST API and dashboard ask of a running cluster.

A verb is a method here, a route in `api/` and a command in `cli/commands/cluster/`. Calls block; the HTTP application
runs them in threads, so implementations are thread-safe. Wrong input raises `UserError`, and then nothing is stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from sterna.service.requests import RuleChanges, Submission, Submitted
from sterna.service.updates import KINDS, Update
from sterna.service.views import EventView, Explanation, JobView, LogPart, NodeView, PolicyView, ProgressView

LOG_BYTES = 1 << 20


class ClusterService(Protocol):
    """A running cluster. A name that does not exist raises `NotFoundError` with the nearest one."""

    def submit(self, submission: Submission) -> Submitted:
        """Create every job of the manifests or none; durable when this returns."""
        ...

    def jobs(self) -> list[JobView]: ...

    def job(self, name: str) -> JobView: ...

    def delete(self, names: Sequence[str]) -> list[JobView]: ...

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView: ...

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView: ...

    def nodes(self) -> list[NodeView]: ...

    def node(self, name: str) -> NodeView: ...

    def cordon(self, name: str) -> NodeView:
        """Start no jobs on the node; those that run there continue."""
        ...

    def drain(self, name: str) -> NodeView:
        """Cordon the node and move its jobs away."""
        ...

    def uncordon(self, name: str) -> NodeView: ...

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        """Events in order: the first `limit` with a larger number than `after`, the last `limit` if that is 0."""
        ...

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = LOG_BYTES) -> LogPart:
        """Output of a replica (default: the first) from `offset`, which counts from the end if negative."""
        ...

    def explain(self, name: str) -> Explanation: ...

    def history(self, name: str) -> list[ProgressView]:
        """Progress reports of a job, oldest first."""
        ...

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        """Record progress that was reported from outside the job."""
        ...

    def rules(self) -> PolicyView: ...

    def set_rules(self, changes: RuleChanges) -> PolicyView: ...

    def watch(self, kinds: Collection[str] = KINDS, until: float = math.inf) -> Iterator[Update]:
        """Yield everything of these kinds once, then what changes, until the cluster ends or `time.monotonic()`
        reaches `until`."""
        ...
