"""Crowds: who sits on each shared node, how much each still has to do, and when everybody would end.

What migrations and shares have in common. Work is in core-seconds, due times in seconds from now. A job whose total is
unknown, or whose workers sit on several nodes, is company: it takes an equal share, and nothing is foretold of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.engine.cpu_sharing.forecast import Turns, equal_ends
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
    on: list[list[int]]
    """Rows by node: those that can be foretold."""
    company: list[int]
    """How many others each node has."""
    left: dict[int, float]
    caps: dict[int, float]
    due: dict[int, float]
    width: dict[int, int]
    """Workers, by row."""
    takes_turns: bool = False
    """A rule divides the nodes, so that forecasts are made for turns; else for equal shares."""
    tail: float = TAIL
    rank: Mapping[int, float] = field(default_factory=dict)
    """Who goes first, by row; absent: by work left alone."""

    def spare(self, node: int, more: int = 0) -> float:
        """Cores of a node that its company leaves, with so many more to share them."""
        here = self.company[node]
        total = here + len(self.on[node]) + more
        return self.cores[node] * (1 - here / total) if here else self.cores[node]

    def order(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[int]:
        """Rows of a node in the order of their turns."""
        caps, left, due = self._lists(node, rows, extra or {})
        rank = [self.rank.get(row, 0.0) for row in rows]
        return [rows[at] for at in Turns(self._cores(node, rows), caps, left).order(due, rank)]

    def ends(self, node: int, rows: Sequence[int], extra: Mapping[int, float] | None = None) -> list[float]:
        """Seconds until each of these rows would end, were they the ones on this node; `extra` is work on top."""
        if not rows:
            return []
        caps, left, due = self._lists(node, rows, extra or {})
        cores = self._cores(node, rows)
        if not self.takes_turns:
            return equal_ends(cores, caps, left)
        rank = [self.rank.get(row, 0.0) for row in rows]
        turns = Turns(cores, caps, left)
        return turns.ends(turns.order(due, rank))

    def lateness(self, rows: Sequence[int], ends: Sequence[float]) -> float:
        """Seconds beyond what the guard allows, all rows together."""
        return sum(max(0.0, end - self.due[row]) for row, end in zip(rows, ends, strict=True))

    def is_contended(self, node: int) -> bool:
        """Whether the jobs of a node could use more cores than it has; else nobody gains when one leaves."""
        return sum([self.caps[row] for row in self.on[node]]) > self.spare(node)

    def load(self, node: int) -> float:
        """Seconds of work that a node has before it, were all its cores busy."""
        return sum([self.left[row] for row in self.on[node]]) / self.cores[node]

    @cached_attribute
    def horizon(self) -> float:
        """When the last job of all could end at the soonest: no node needs to be done before that."""
        ends = [self.load(node) for node in range(len(self.on))]
        return max([*ends, *(self.left[row] / self.caps[row] for row in self.left)], default=0.0)

    def _cores(self, node: int, rows: Sequence[int]) -> float:
        return self.spare(node, len(rows) - len(self.on[node]))

    def _lists(
        self, node: int, rows: Sequence[int], extra: Mapping[int, float]
    ) -> tuple[list[float], list[float], list[float]]:
        cores = self.cores[node]
        caps = [min(self.caps[row], cores) for row in rows]
        left = [self.left[row] + extra.get(row, 0.0) for row in rows]
        soonest = max(sum(left) / cores, max(work / cap for work, cap in zip(left, caps, strict=True)))
        latest = max(soonest, self.horizon) * (1 + self.tail)
        return caps, left, [min(self.due[row], latest) for row in rows]


def shared_nodes_of(snapshot: Snapshot, guard: float = GUARD, tail: float = TAIL) -> SharedNodes | None:
    """The shared nodes, or None where no job says that it shares one."""
    jobs = snapshot.jobs
    most = jobs.most_cores
    if np.isnan(most).all():
        return None
    nodes = len(snapshot.nodes)
    cores = (snapshot.nodes.capacity[ResourceKind.CPUS] / MILLI).tolist()
    crowd = SharedNodes(cores, [[] for _ in range(nodes)], [0] * nodes, {}, {}, {}, {}, snapshot.has_cpu_shares, tail)
    work = (jobs.remaining * most).tolist()
    due = (jobs.submit + guard * (jobs.default_finish - jobs.submit) - snapshot.now).tolist()
    cap, keys, assignments = most.tolist(), jobs.key.tolist(), snapshot.assignments
    for row in (jobs.workers > 0).nonzero()[0].tolist():
        seats = assignments[JobKey(keys[row])].workers
        if seats[0][0] == ANYWHERE:
            continue
        if len(seats) > 1 or not work[row] < NEVER:
            for node, _ in seats:
                crowd.company[node] += 1
            continue
        (node, count), left = seats[0], work[row]
        crowd.on[node].append(row)
        crowd.left[row], crowd.caps[row], crowd.width[row] = left, cap[row] * count, count
        crowd.due[row] = due[row] if due[row] == due[row] else NEVER
    return crowd


def weighed(crowd: SharedNodes, rows: Iterable[int], ends: Iterable[float]) -> float:
    """The sum of ends, each counted once a worker: worker-seconds until all have ended."""
    return sum([crowd.width[row] * end for row, end in zip(rows, ends, strict=True)])
