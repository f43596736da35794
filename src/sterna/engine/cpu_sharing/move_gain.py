"""Gain of moves between shared nodes: choose the best of the possible moves, if its gain exceeds its price.

Both nodes are forecast with and without the move. The forecast includes the delay of the moved job, and the gain must
exceed the price in addition. A move must not add lateness beyond what the guard allows, and the end of the moved
job itself has a bound relative to its end without the move. The migration rule lists the possible moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sterna.engine.cpu_sharing.shared_nodes import GUARD, SharedNodes, worker_seconds
from sterna.engine.price import MoveHistory, cost, devices, pays
from sterna.engine.registry import Move
from sterna.model.cluster import Assignment, Bools
from sterna.model.plan import NO_JOB
from sterna.model.snapshot import JobKey, Snapshot

_LATENESS_TOLERANCE = 1e-6
"""Seconds of additional lateness that count as rounding."""

_MAX_OPTIONS = 60
"""Upper bound on evaluated moves, those from the most loaded nodes first, so that a round stays short."""


class Option(NamedTuple):
    """Possible move of a whole job to another node."""

    row: int
    source: int
    target: int


@dataclass
class MoveEvaluator:
    """Evaluates moves on one snapshot by forecasts with and without them."""

    snapshot: Snapshot
    shared: SharedNodes
    memory: MoveHistory | None
    """Earlier moves, which must not be undone; None allows jobs to swap repeatedly."""
    is_priced: bool = True
    margin: float = 1.0
    own_guard: float = GUARD
    """Upper bound on the time until the moved job ends, as a multiple of that without the move."""
    counts: Bools | None = None
    """By row: True if the job's time counts as a gain; None: all jobs count."""
    _ends: dict[int, list[float]] = field(default_factory=dict)

    def best(self, options: Iterable[Option]) -> Move | None:
        """Return the move with the largest gain above its price, the first of equal ones; None if none pays."""
        chosen, most = None, 0.0
        possible = list(options)
        if len(possible) > _MAX_OPTIONS:
            possible.sort(key=lambda option: -self.shared.load(option.source))
        for option in possible[:_MAX_OPTIONS]:
            if self.memory is not None and self.memory.undoes(option.row, option.target):
                continue
            worth = self._net_gain(option)
            if worth > most:
                chosen, most = option, worth
        return None if chosen is None else self.move(chosen)

    def move(self, option: Option) -> Move:
        count = self.shared.workers.get(option.row) or self.snapshot.assignment_of(option.row).size
        return Move(option.row, Assignment(((option.target, count),)), self._gainer(option))

    def _net_gain(self, option: Option) -> float:
        """Return gain less price in device-seconds; 0 if the move does not pay."""
        shared, row = self.shared, option.row
        price = cost(self.snapshot, row) if self.is_priced else 0.0
        device_count = devices(self.snapshot, row)
        delay = {row: price / device_count * shared.core_limits[row]} if price else None
        stay, go = shared.rows_on[option.source], shared.rows_on[option.target]
        rest, joined = [other for other in stay if other != row], [*go, row]
        before = self._ends_now(option.source), self._ends_now(option.target)
        after = shared.ends(option.source, rest), shared.ends(option.target, joined, delay)
        gain = self._sum(stay, before[0]) + self._sum(go, before[1])
        gain -= self._sum(rest, after[0]) + self._sum(joined, after[1])
        if not pays(gain, price, self.margin):
            return 0.0
        if self.is_priced:
            ends = dict(zip([*stay, *go], [*before[0], *before[1]], strict=True))
            if after[1][-1] > self.own_guard * ends[row] or self._delays(ends, rest, after[0]):
                return 0.0
            if self._delays(ends, joined, after[1]):
                return 0.0
        return gain - price

    def _delays(self, before: Mapping[int, float], rows: list[int], after: list[float]) -> bool:
        """Return True if the move makes one of these jobs later than the guard allows."""
        due = self.shared.due
        return any(end > max(before[row], due[row]) + _LATENESS_TOLERANCE for row, end in zip(rows, after, strict=True))

    def _ends_now(self, node: int) -> list[float]:
        if node not in self._ends:
            self._ends[node] = self.shared.ends(node, self.shared.rows_on[node])
        return self._ends[node]

    def _sum(self, rows: list[int], ends: list[float]) -> float:
        if self.counts is None:
            return worker_seconds(self.shared, rows, ends)
        pairs = [(row, end) for row, end in zip(rows, ends, strict=True) if self.counts[row]]
        return worker_seconds(self.shared, [row for row, _ in pairs], [end for _, end in pairs])

    def _gainer(self, option: Option) -> JobKey:
        """Return the job on the old node whose end the move brings forward most."""
        shared = self.shared
        stay = shared.rows_on[option.source]
        rest = [row for row in stay if row != option.row]
        if not rest:
            return NO_JOB
        before = dict(zip(stay, self._ends_now(option.source), strict=True))
        saved = [before[row] - end for row, end in zip(rest, shared.ends(option.source, rest), strict=True)]
        return JobKey(self.snapshot.jobs.key.item(rest[saved.index(max(saved))]))
