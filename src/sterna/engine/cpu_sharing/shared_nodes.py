"""Crowds: who sits on each shared node, how much each still has to do, and when everybody would end.

What migrations and shares have in common. Work is in core-seconds, due times in seconds from now. A job whose total is
unknown, or whose workers sit on several nodes, is company: it takes an equal share, and nothing is foretold of it.
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
"""Nobody ends later than this many times what the default scheduler would have given it, if that can be helped."""

TAIL = 0.0
"""How much later than possible the last job of a node may end for the sake of shorter ones."""


@dataclass
class SharedNodes:
    """The shared nodes of one instant."""

    cores: list[float]
    rows_on: list[list[int]]
    """Rows by node: those that can be foretold."""
    opaque_jobs: list[int]
    """How many others each node has."""
    remaining_work: dict[int, float]
    core_limits: dict[int, float]
    due: dict[int, float]
    workers: dict[int, int]
    """Workers, by row."""
    takes_turns: bool = False
    """A rule divides the nodes, so that forecasts are made for turns; else for equal shares."""
    tail: float = TAIL
    rank: Mapping[int, float] = field(default_factory=dict)
    """Who goes first, by row; absent: by work left alone."""

    def available_cores(self, node: int, more: int = 0) -> float:
        """Cores of a node that its company leaves, with so many more to share them."""
        here = self.opaque_jobs[node]
        total = here + len(self.rows_on[node]) + more
        return self.cores[node] * (1 - here / total) if here else self.cores[node]

    def order(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[int]:
        """Rows of a node in the order of their turns."""
        caps, left, due = self._lists(node, rows, extra or {})
        rank = [self.rank.get(row, 0.0) for row in rows]
        return [rows[at] for at in TurnSchedule(self._cores(node, rows), caps, left).order(due, rank)]

    def ends(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[float]:
        """Seconds until each of these rows would end, were they the ones on this node; `extra` is work on top."""
        if not rows:
            return []
        caps, left, due = self._lists(node, rows, extra or {})
        cores = self._cores(node, rows)
        if not self.takes_turns:
            return equal_ends(cores, caps, left)
        rank = [self.rank.get(row, 0.0) for row in rows]
        turns = TurnSchedule(cores, caps, left)
        return turns.ends(turns.order(due, rank))

    def lateness(self, rows: Sequence[int], ends: Sequence[float]) -> float:
        """Seconds beyond what the guard allows, all rows together."""
        return sum(max(0.0, end - self.due[row]) for row, end in zip(rows, ends, strict=True))

    def is_contended(self, node: int) -> bool:
        """Whether the jobs of a node could use more cores than it has; else nobody gains when one leaves."""
        return sum([self.core_limits[row] for row in self.rows_on[node]]) > self.available_cores(node)

    def load(self, node: int) -> float:
        """Seconds of work that a node has before it, were all its cores busy."""
        return sum([self.remaining_work[row] for row in self.rows_on[node]]) / self.cores[node]

    @cached_attribute
    def horizon(self) -> float:
        """When the last job of all could end at the soonest: no node needs to be done before that."""
        ends = [self.load(node) for node in range(len(self.rows_on))]
        return max(
            [*ends, *(self.remaining_work[row] / self.core_limits[row] for row in self.remaining_work)], default=0.0
        )

    def _cores(self, node: int, rows: Sequence[int]) -> float:
        return self.available_cores(node, len(rows) - len(self.rows_on[node]))

    def _lists(
        self, node: int, rows: Sequence[int], extra: Mapping[int, float]
    ) -> tuple[list[float], list[float], list[float]]:
        cores = self.cores[node]
        caps = [min(self.core_limits[row], cores) for row in rows]
        left = [self.remaining_work[row] + extra.get(row, 0.0) for row in rows]
        soonest = max(sum(left) / cores, max(work / cap for work, cap in zip(left, caps, strict=True)))
        latest = max(soonest, self.horizon) * (1 + self.tail)
        return caps, left, [min(self.due[row], latest) for row in rows]


def build_shared_nodes(snapshot: Snapshot, guard: float = GUARD, tail: float = TAIL) -> SharedNodes | None:
    """The shared nodes, or None where no job says that it shares one."""
    jobs = snapshot.jobs
    most = jobs.most_cores
    if np.isnan(most).all():
        return None
    nodes = len(snapshot.nodes)
    cores = (snapshot.nodes.capacity[ResourceKind.CPUS] / MILLI).tolist()
    shared = SharedNodes(cores, [[] for _ in range(nodes)], [0] * nodes, {}, {}, {}, {}, snapshot.has_cpu_shares, tail)
    work = (jobs.remaining * most).tolist()
    due = (jobs.submit + guard * (jobs.default_finish - jobs.submit) - snapshot.now).tolist()
    cap, keys, assignments = most.tolist(), jobs.key.tolist(), snapshot.assignments
    for row in (jobs.workers > 0).nonzero()[0].tolist():
        seats = assignments[JobKey(keys[row])].workers
        if seats[0][0] == ANYWHERE:
            continue
        if len(seats) > 1 or not work[row] < NEVER:
            for node, _ in seats:
                shared.opaque_jobs[node] += 1
            continue
        (node, count), left = seats[0], work[row]
        shared.rows_on[node].append(row)
        shared.remaining_work[row], shared.core_limits[row], shared.workers[row] = left, cap[row] * count, count
        shared.due[row] = due[row] if due[row] == due[row] else NEVER
    return shared


def worker_seconds(shared: SharedNodes, rows: Iterable[int], ends: Iterable[float]) -> float:
    """The sum of ends, each counted once a worker: worker-seconds until all have ended."""
    return sum([shared.workers[row] * end for row, end in zip(rows, ends, strict=True)])
