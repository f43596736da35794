"""Jobs and nodes of a whole journal, collected round by round.

Enough to simulate the jobs again: submission, bounds, work when first seen, end, and time without workers. Memory grows
with the number of jobs, not of rounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from sterna.backends.simulated.costs import Fault
from sterna.control.journal import Round
from sterna.model.cluster import Nodes, Shape
from sterna.model.plan import ActionKind
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import LINEAR


@dataclass
class PastJob:
    """One job of a journal. Times are as recorded; a job that is older than the journal counts from the journal's
    start."""

    name: str
    submit: float
    request: int
    minimum: int
    maximum: int
    priority: int
    shape: Shape
    curve: tuple[float, ...] | None
    """None: linear."""
    work: float
    requested_seconds: float
    """Requested run time that was not used up before the journal; NaN if unknown."""
    finish: float = NEVER
    waited: float = 0.0


class JournalHistory:
    """Collects the jobs and nodes of rounds; call `add` for every round in order."""

    def __init__(self) -> None:
        self.rounds = 0
        self.start = self.end = 0.0
        self.jobs: list[PastJob] = []
        """In order of submission."""
        self.counts = Counter[ActionKind]()
        self.restart_seconds = 0.0
        self.nodes: Nodes | None = None
        """Nodes of the first round, without jobs."""
        self.are_nodes_known = True
        """False if nodes changed in a way that a simulation cannot repeat."""
        self.early = 0
        """Number of jobs that are older than the journal."""
        self._present: dict[int, PastJob] = {}
        self._closed_at: dict[int, float] = {}
        self._faults: list[Fault] = []

    @property
    def faults(self) -> list[Fault]:
        return [*self._faults, *(Fault(node, at) for node, at in self._closed_at.items())]

    def add(self, recorded: Round) -> None:
        snapshot = recorded.snapshot
        if not self.rounds:
            self.start, self.restart_seconds = snapshot.now, snapshot.restart_seconds
            self.nodes = replace(snapshot.nodes, free=snapshot.nodes.capacity.copy(), shared={})
        else:
            self._update_nodes(snapshot)
        self.rounds += 1
        self.end = snapshot.now
        self._update_jobs(snapshot)
        keys, since = snapshot.jobs.key, snapshot.jobs.waiting_since
        for action in recorded.actions:
            self.counts[action.kind] += 1
            if action.kind is ActionKind.START:
                job = self._present[keys.item(action.row)]
                job.waited += snapshot.now - max(since.item(action.row), self.start)

    def _update_jobs(self, snapshot: Snapshot) -> None:
        keys = snapshot.jobs.key.tolist()
        if len(keys) != len(self._present) or any(key not in self._present for key in keys):
            for key in self._present.keys() - set(keys):
                self._present.pop(key).finish = snapshot.now
            for row, key in enumerate(keys):
                if key not in self._present:
                    self._present[key] = self._make_job(snapshot, row)
                    self.jobs.append(self._present[key])

    def _make_job(self, snapshot: Snapshot, row: int) -> PastJob:
        jobs = snapshot.jobs
        curve = jobs.curve.item(row)
        self.early += jobs.submit.item(row) < self.start
        return PastJob(
            jobs.name_of(row),
            max(jobs.submit.item(row), self.start),
            jobs.request.item(row),
            jobs.minimum.item(row),
            jobs.maximum.item(row),
            jobs.priority.item(row),
            snapshot.shapes[jobs.shape.item(row)],
            None if curve == LINEAR else snapshot.curves.rows[curve],
            jobs.remaining.item(row),
            jobs.requested_seconds.item(row) - jobs.executed.item(row),
        )

    def _update_nodes(self, snapshot: Snapshot) -> None:
        """Record nodes that closed, and opened again, as faults."""
        now, nodes, known = snapshot.now, snapshot.nodes, self.nodes
        assert known is not None
        if tuple(nodes.name) != tuple(known.name) or not np.array_equal(nodes.capacity, known.capacity):
            self.are_nodes_known = False
            return
        closed = set(np.flatnonzero(~nodes.is_open & known.is_open).tolist())
        self.are_nodes_known &= not (nodes.is_open & ~known.is_open).any()
        for node in closed - self._closed_at.keys():
            self._closed_at[node] = now
        for node in self._closed_at.keys() - closed:
            at = self._closed_at.pop(node)
            self._faults.append(Fault(node, at, now - at))
