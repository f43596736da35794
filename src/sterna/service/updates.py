"""Values that `ClusterService.watch` yields, and the comparison with what was yielded before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from sterna.service.views import EventView, JobView, NodeView, PolicyView

KINDS = ("jobs", "nodes", "rules", "events")
FIRST_EVENTS = 100
"""Events that a watch begins with, at most."""


class JobsUpdate(msgspec.Struct):
    """Jobs that are new or changed, and the identities of jobs that are gone."""

    changed: list[JobView]
    gone: list[str]


class NodesUpdate(msgspec.Struct):
    """All nodes, because one changed."""

    nodes: list[NodeView]


class RulesUpdate(msgspec.Struct):
    """The rules in force; None: the cluster does not publish them."""

    rules: PolicyView | None


class EventsUpdate(msgspec.Struct):
    """New events, oldest first."""

    events: list[EventView]


Update = JobsUpdate | NodesUpdate | RulesUpdate | EventsUpdate


class UpdateTracker:
    """Yields an update where a value differs from the last one that it was given. Of one watch."""

    def __init__(self, ignores_elapsed_time: bool = False) -> None:
        """`ignores_elapsed_time`: a job whose waiting or running time alone grew has not changed."""
        self._ignores_elapsed_time = ignores_elapsed_time
        self._jobs: dict[str, bytes] | None = None
        self._nodes: list[bytes] | None = None
        self._rules: bytes | None = None
        self.last_event = 0
        """Number of the newest event that was yielded."""

    def compare_jobs(self, jobs: Sequence[JobView]) -> Iterator[JobsUpdate]:
        before = self._jobs or {}
        encoded = {job.identity: self._encode(job) for job in jobs}
        changed = [job for job in jobs if before.get(job.identity) != encoded[job.identity]]
        gone = [identity for identity in before if identity not in encoded]
        is_first, self._jobs = self._jobs is None, encoded
        if changed or gone or is_first:
            yield JobsUpdate(changed, gone)

    def compare_nodes(self, nodes: list[NodeView]) -> Iterator[NodesUpdate]:
        encoded = [msgspec.json.encode(node) for node in nodes]
        if encoded != self._nodes:
            self._nodes = encoded
            yield NodesUpdate(nodes)

    def compare_rules(self, rules: PolicyView | None) -> Iterator[RulesUpdate]:
        encoded = msgspec.json.encode(rules)
        if encoded != self._rules:
            self._rules = encoded
            yield RulesUpdate(rules)

    def compare_events(self, events: Sequence[EventView]) -> Iterator[EventsUpdate]:
        new = [event for event in events if event.number > self.last_event]
        if new:
            new = new if self.last_event else new[-FIRST_EVENTS:]
            self.last_event = new[-1].number
            yield EventsUpdate(new)

    def _encode(self, job: JobView) -> bytes:
        if self._ignores_elapsed_time:
            job = msgspec.structs.replace(job, waited_seconds=0.0, ran_seconds=0.0)
        return msgspec.json.encode(job)
