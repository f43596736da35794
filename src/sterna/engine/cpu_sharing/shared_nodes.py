"""Shared nodes of a snapshot: the jobs on each, their remaining work, and a forecast of their ends.

Used by migrations and CPU-share rules. Work is in core-seconds, due times in seconds from now. A job whose total is
unknown, or whose workers are on several nodes, is opaque: it takes an equal share and has no forecast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.engine.cpu_sharing.forecast import TurnSchedule, equal_ends
from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import ANYWHERE, MILLI, ResourceKind
from sterna.model.snapshot import NEVER, JobKey, Snapshot

GUARD = 1.05
"""Upper bound on the completion time of a job, as a multiple of that under the default scheduler, where feasible."""

TAIL = 0.0
"""Fraction by which the last job of a node may end later than the earliest possible, in favour of shorter jobs."""


@dataclass
class SharedNodes:
    """Jobs and load of the shared nodes in one snapshot; lists are indexed by node, dictionaries by row."""

    cores: list[float]
    rows_on: list[list[int]]
    """Rows of the jobs that have a forecast."""
    opaque_jobs: list[int]
    """Number of opaque jobs."""
    remaining_work: dict[int, float]
    core_limits: dict[int, float]
    due: dict[int, float]
    workers: dict[int, int]
    takes_turns: bool = False
    """True if a CPU-share rule is in force: the forecast is then by turns, else by equal shares."""
    tail: float = TAIL
    rank: Mapping[int, float] = field(default_factory=dict)
    """Rank of a job in the order of turns, low ranks first; 0 if absent. Ties go to the job with less work."""

    def available_cores(self, node: int, more: int = 0) -> float:
        """Return the cores that the opaque jobs of a node leave to the others, if it had `more` jobs."""
        here = self.opaque_jobs[node]
        total = here + len(self.rows_on[node]) + more
        return self.cores[node] * (1 - here / total) if here else self.cores[node]

    def order(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[int]:
        """Return `rows` in the order of their turns on this node."""
        limits, left, due = self._turn_columns(node, rows, extra or {})
        rank = [self.rank.get(row, 0.0) for row in rows]
        return [rows[at] for at in TurnSchedule(self._cores(node, rows), limits, left).order(due, rank)]

    def ends(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[float]:
        """Return the seconds until each job would end if only `rows` were on this node; `extra` is additional work."""
        if not rows:
            return []
        limits, left, due = self._turn_columns(node, rows, extra or {})
        cores = self._cores(node, rows)
        if not self.takes_turns:
            return equal_ends(cores, limits, left)
        rank = [self.rank.get(row, 0.0) for row in rows]
        turns = TurnSchedule(cores, limits, left)
        return turns.ends(turns.order(due, rank))

    def is_contended(self, node: int) -> bool:
        """Return True if the jobs of a node could use more cores than it has; else no job gains when another leaves."""
        return sum([self.core_limits[row] for row in self.rows_on[node]]) > self.available_cores(node)

    def load(self, node: int) -> float:
        """Return the seconds that a node needs for its remaining work with all cores busy."""
        return sum([self.remaining_work[row] for row in self.rows_on[node]]) / self.cores[node]

    @cached_attribute
    def horizon(self) -> float:
        """Earliest possible end of the last job, in seconds from now; no node needs to finish before it."""
        ends = [self.load(node) for node in range(len(self.rows_on))]
        return max(
            [*ends, *(self.remaining_work[row] / self.core_limits[row] for row in self.remaining_work)], default=0.0
        )

    def _cores(self, node: int, rows: Sequence[int]) -> float:
        return self.available_cores(node, len(rows) - len(self.rows_on[node]))

    def _turn_columns(
        self, node: int, rows: Sequence[int], extra: Mapping[int, float]
    ) -> tuple[list[float], list[float], list[float]]:
        cores = self.cores[node]
        limits = [min(self.core_limits[row], cores) for row in rows]
        left = [self.remaining_work[row] + extra.get(row, 0.0) for row in rows]
        soonest = max(sum(left) / cores, max(work / limit for work, limit in zip(left, limits, strict=True)))
        latest = max(soonest, self.horizon) * (1 + self.tail)
        return limits, left, [min(self.due[row], latest) for row in rows]


def build_shared_nodes(snapshot: Snapshot, guard: float = GUARD, tail: float = TAIL) -> SharedNodes | None:
    """Return the shared nodes of a snapshot, or None if no job shares one."""
    jobs = snapshot.jobs
    most = jobs.most_cores
    if np.isnan(most).all():
        return None
    nodes = len(snapshot.nodes)
    cores = (snapshot.nodes.capacity[ResourceKind.CPUS] / MILLI).tolist()
    shared = SharedNodes(cores, [[] for _ in range(nodes)], [0] * nodes, {}, {}, {}, {}, snapshot.has_cpu_shares, tail)
    work = (jobs.remaining * most).tolist()
    due = (jobs.submit + guard * (jobs.default_finish - jobs.submit) - snapshot.now).tolist()
    limit, keys, assignments = most.tolist(), jobs.key.tolist(), snapshot.assignments
    for row in (jobs.workers > 0).nonzero()[0].tolist():
        runs = assignments[JobKey(keys[row])].workers
        if runs[0][0] == ANYWHERE:
            continue
        if len(runs) > 1 or not work[row] < NEVER:
            for node, _ in runs:
                shared.opaque_jobs[node] += 1
            continue
        (node, count), left = runs[0], work[row]
        shared.rows_on[node].append(row)
        shared.remaining_work[row], shared.core_limits[row], shared.workers[row] = left, limit[row] * count, count
        shared.due[row] = due[row] if due[row] == due[row] else NEVER
    return shared


def worker_seconds(shared: SharedNodes, rows: Iterable[int], ends: Iterable[float]) -> float:
    """Return the worker-seconds until all these jobs have ended."""
    return sum([shared.workers[row] * end for row, end in zip(rows, ends, strict=True)])
