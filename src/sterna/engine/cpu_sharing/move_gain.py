"""Moves between shared nodes, weighed: which of some possible ones brings most, and whether it is worth its price.

A forecast of both nodes is made with and without the move; the delay of the one that moves is in it, and the gain must
exceed the price beyond that. Nobody may thereby end later than the guard allows who would not have anyway. Which moves
are possible at all is for the migration to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sterna.engine.cpu_sharing.shared_nodes import SharedNodes, worker_seconds
from sterna.engine.price import Memory, cost, devices, pays
from sterna.engine.registry import Move
from sterna.model.cluster import Assignment, Bools
from sterna.model.plan import NO_JOB
from sterna.model.snapshot import JobKey, Snapshot

_LATER = 1e-6
"""Seconds of lateness that are rounding."""


_MOST_OPTIONS = 60
"""Of more, those from the most crowded nodes are weighed, so that a round stays short on a large cluster."""


class Option(NamedTuple):
    """A job that could sit on another node, whole."""

    row: int
    source: int
    target: int


@dataclass
class MoveEvaluator:
    """The same instant with and without a move."""

    snapshot: Snapshot
    shared: SharedNodes
    memory: Memory | None
    """None: nothing is remembered, so that jobs may change places for ever."""
    is_priced: bool = True
    margin: float = 1.0
    counts: Bools | None = None
    """Whose time counts as a gain; None: everybody's."""
    _ends: dict[int, list[float]] = field(default_factory=dict)

    def best(self, options: Iterable[Option]) -> Move | None:
        """The move with the greatest gain above its price; the first of equals."""
        chosen, most = None, 0.0
        possible = list(options)
        if len(possible) > _MOST_OPTIONS:
            possible.sort(key=lambda option: -self.shared.load(option.source))
        for option in possible[:_MOST_OPTIONS]:
            if self.memory is not None and self.memory.undoes(option.row, option.target):
                continue
            worth = self._worth(option)
            if worth > most:
                chosen, most = option, worth
        return None if chosen is None else self.move(chosen)

    def move(self, option: Option) -> Move:
        count = self.shared.workers.get(option.row) or self.snapshot.assignment_of(option.row).size
        return Move(option.row, Assignment(((option.target, count),)), self._gainer(option))

    def _worth(self, option: Option) -> float:
        """Gain less price in device-seconds; nothing if it does not pay."""
        shared, row = self.shared, option.row
        price = cost(self.snapshot, row) if self.is_priced else 0.0
        width = devices(self.snapshot, row)
        delay = {row: price / width * shared.core_limits[row]} if price else None
        stay, go = shared.rows_on[option.source], shared.rows_on[option.target]
        rest, joined = [other for other in stay if other != row], [*go, row]
        before = self._now(option.source), self._now(option.target)
        after = shared.ends(option.source, rest), shared.ends(option.target, joined, delay)
        gain = self._sum(stay, before[0]) + self._sum(go, before[1])
        gain -= self._sum(rest, after[0]) + self._sum(joined, after[1])
        if not pays(gain, price, self.margin):
            return 0.0
        if self.is_priced:
            late = shared.lateness(stay, before[0]) + shared.lateness(go, before[1])
            if shared.lateness(rest, after[0]) + shared.lateness(joined, after[1]) > late + _LATER:
                return 0.0
        return gain - price

    def _now(self, node: int) -> list[float]:
        if node not in self._ends:
            self._ends[node] = self.shared.ends(node, self.shared.rows_on[node])
        return self._ends[node]

    def _sum(self, rows: list[int], ends: list[float]) -> float:
        if self.counts is None:
            return worker_seconds(self.shared, rows, ends)
        pairs = [(row, end) for row, end in zip(rows, ends, strict=True) if self.counts[row]]
        return worker_seconds(self.shared, [row for row, _ in pairs], [end for _, end in pairs])

    def _gainer(self, option: Option) -> JobKey:
        """The job on the old node that ends so much sooner than any other."""
        shared = self.shared
        stay = shared.rows_on[option.source]
        rest = [row for row in stay if row != option.row]
        if not rest:
            return NO_JOB
        before = dict(zip(stay, self._now(option.source), strict=True))
        saved = [before[row] - end for row, end in zip(rest, shared.ends(option.source, rest), strict=True)]
        return JobKey(self.snapshot.jobs.key.item(rest[saved.index(max(saved))]))
