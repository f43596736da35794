"""`FakeCluster`: a `ClusterService` in memory that runs no jobs, for tests of the API and of commands.

A test changes its jobs directly where a real cluster would train.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator, Sequence

import msgspec

from sterna.backends.local.submission import read_submission
from sterna.errors import UserError, did_you_mean
from sterna.model.job import JobSpec
from sterna.service.errors import NameTakenError, NotFoundError
from sterna.service.requests import RuleChanges, Submission, Submitted
from sterna.service.updates import KINDS, Update, UpdateTracker
from sterna.service.views import (
    EventView,
    ExplainedEvent,
    Explanation,
    JobView,
    LogPart,
    NodeView,
    PolicyView,
    ProgressView,
    ReplicaView,
    StartingChange,
)

SUBMITTED_AT = 1_700_000_000.0


class FakeCluster:
    """Two nodes of two cores, and whatever jobs were created."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self.views: dict[str, JobView] = {}
        self.happened: list[EventView] = []
        self.reports: dict[str, list[ProgressView]] = {}
        self.logs: dict[str, bytes] = {}
        self.machines = {name: _node(name) for name in ("node-0", "node-1")}
        self.in_force = PolicyView("elastic-fifo", "stay", "none", "equal", "none", 0.0)
        self.moved: list[tuple[str, str, bool]] = []
        self._keys: dict[str, list[str]] = {}
        self._changed = threading.Condition()
        self._number = 0

    def submit(self, submission: Submission) -> Submitted:
        specs, notices = read_submission(submission)
        return Submitted(self.create(specs, submission.key) if specs else [], notices)

    def create(self, specs: Sequence[JobSpec], key: str = "") -> list[JobView]:
        with self._changed:
            if key and key in self._keys:
                return [self.views[name] for name in self._keys[key]]
            for spec in specs:
                if spec.name in self.views:
                    raise NameTakenError(f"A job named '{spec.name}' exists already; choose another name.")
                if spec.minimum * spec.worker.cpus > 4000:
                    raise UserError(f"{spec.name} needs more cores than any node has; ask for fewer.")
            for spec in specs:
                self.specs[spec.name] = spec
                self.views[spec.name] = _job(spec)
            self._keys[key] = [spec.name for spec in specs]
        for spec in specs:
            self.record(f"{spec.name} was submitted.", "submitted", spec.name)
        return [self.views[spec.name] for spec in specs]

    def jobs(self) -> list[JobView]:
        return list(self.views.values())

    def job(self, name: str) -> JobView:
        if name not in self.views:
            raise NotFoundError(f"There is no job '{name}'; {did_you_mean(name, self.views)}")
        return self.views[name]

    def delete(self, names: Sequence[str]) -> list[JobView]:
        found = [self.job(name) for name in names]
        for job in found:
            job.state = "deleting"
            del self.views[job.name]
            self.record(f"{job.name} was deleted.", "deleted", job.name)
        return found

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView:
        job = self.job(name)
        low = job.minimum if minimum is None else minimum
        high = job.maximum if maximum is None else maximum
        if not 1 <= low <= high:
            raise UserError(f"{name}: min {low} is above max {high}; make it at most as large.")
        job.minimum, job.maximum = low, high
        self.record(f"{name} may have {low} to {high} workers.", "scaled", name)
        return job

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView:
        job = self.job(name)
        self._node(node)
        self.moved.append((name, node, by_checkpoint))
        job.nodes, job.moves = [node], job.moves + 1
        self.record(f"{name} moved to {node}.", "moved", name)
        return job

    def nodes(self) -> list[NodeView]:
        return list(self.machines.values())

    def node(self, name: str) -> NodeView:
        return self._node(name)

    def cordon(self, name: str) -> NodeView:
        return self._set_state(name, "cordoned")

    def drain(self, name: str) -> NodeView:
        return self._set_state(name, "draining")

    def uncordon(self, name: str) -> NodeView:
        return self._set_state(name, "ready")

    def _set_state(self, name: str, state: str) -> NodeView:
        node = self._node(name)
        node.state = state
        self.record(f"{name} is {state}.", "node")
        return node

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        events = [event for event in self.happened if event.number > after and job in ("", event.job)]
        return events[:limit] if after else events[-limit:]

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = 1 << 20) -> LogPart:
        self.job(name)
        if replica not in ("", "worker-0"):
            raise UserError(f"{name} has no replica '{replica}'; choose one of: worker-0.")
        text = self.logs.get(name, b"")
        start = max(0, len(text) + offset) if offset < 0 else offset
        part = text[start : start + limit]
        return LogPart(part, start + len(part))

    def explain(self, name: str) -> Explanation:
        job = self.job(name)
        return Explanation(
            name,
            self.in_force.policy,
            self.in_force.placement,
            round=3,
            at_s=12.0,
            state="waits" if job.state == "waiting" else "runs",
            events=[ExplainedEvent(0.0, "submitted", "submitted: asks for 1 worker.")],
            changes=[StartingChange("1 more core would start it now.")] if job.state == "waiting" else [],
        )

    def rules(self) -> PolicyView:
        return self.in_force

    def set_rules(self, changes: RuleChanges) -> PolicyView:
        if changes.policy not in (None, "fifo", "elastic-fifo", "srjf"):
            raise UserError(f"There is no policy '{changes.policy}'; choose one of: elastic-fifo, fifo, srjf.")
        for name, value in msgspec.structs.asdict(changes).items():
            if value is not None:
                setattr(self.in_force, name, value)
        self.record("The rules were changed.", "rules")
        return self.in_force

    def history(self, name: str) -> list[ProgressView]:
        self.job(name)
        return self.reports.get(name, [])

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        job = self.job(name)
        job.step, job.total = step, total
        self.reports.setdefault(name, []).append(ProgressView(SUBMITTED_AT, 1, step, total, dict(metrics)))
        self.touch()

    def watch(self, kinds: Collection[str] = KINDS, until: float = math.inf) -> Iterator[Update]:
        tracker = UpdateTracker()
        number = -1
        while (left := until - time.monotonic()) > 0:
            with self._changed:
                if self._number <= number:
                    self._changed.wait(min(left, 60.0))
                number = self._number
            yield from tracker.compare_jobs(self.jobs()) if "jobs" in kinds else ()
            yield from tracker.compare_nodes(self.nodes()) if "nodes" in kinds else ()
            yield from tracker.compare_rules(self.rules()) if "rules" in kinds else ()
            yield from tracker.compare_events(self.events(after=tracker.last_event)) if "events" in kinds else ()

    def record(self, sentence: str, kind: str, job: str = "") -> None:
        """Record an event."""
        with self._changed:
            number = len(self.happened) + 1
            self.happened.append(EventView(number, SUBMITTED_AT + number, job, kind, sentence))
        self.touch()

    def run(self, name: str, step: int, total: int, node: str = "node-0") -> JobView:
        """Let a job run."""
        job = self.job(name)
        job.state, job.workers, job.nodes, job.step, job.total = "running", job.request, [node], step, total
        job.metric, job.value, job.growth, job.eta_seconds, job.attempt = "loss", 0.25, "progressing", 65.0, 1
        job.waited_seconds, job.ran_seconds, job.first_started_at = 3.0, 65.0, SUBMITTED_AT + 3
        job.replicas = [ReplicaView("worker-0", node, "running", 1, 4242)]
        self.record(f"{name} started on {node}.", "started", name)
        return job

    def end(self, name: str, state: str = "completed") -> JobView:
        """Let a job end."""
        job = self.job(name)
        job.state, job.workers, job.replicas, job.nodes = state, 0, [], []
        job.ended_at, job.exit_code = SUBMITTED_AT + 100, 0 if state == "completed" else 1
        self.record(f"{name} {state}.", state, name)
        return job

    def touch(self) -> None:
        with self._changed:
            self._number += 1
            self._changed.notify_all()

    def _node(self, name: str) -> NodeView:
        if name not in self.machines:
            raise NotFoundError(f"There is no node '{name}'; {did_you_mean(name, self.machines)}")
        return self.machines[name]


def _job(spec: JobSpec) -> JobView:
    return JobView(
        name=spec.name,
        kind=spec.kind,
        state="waiting",
        reason="1 more core is needed.",
        workers=0,
        minimum=spec.minimum,
        maximum=spec.maximum,
        request=spec.request,
        priority=spec.priority,
        category=spec.category or spec.name.rstrip("0123456789-"),
        user=spec.user,
        submitted_at=SUBMITTED_AT,
        notices=list(spec.notices),
    )


def _node(name: str) -> NodeView:
    return NodeView(
        name=name,
        state="ready",
        cpus=2.0,
        cpus_free=1.0 if name == "node-0" else 2.0,
        devices=0.0,
        devices_free=0.0,
        memory_bytes=8 << 30,
        memory_free_bytes=8 << 30,
        shared=False,
        control="affinity",
    )
