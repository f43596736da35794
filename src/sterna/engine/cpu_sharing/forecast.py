"""Forecast of the end of each job on a shared node: by equal CPU shares, or one after the other.

Used by migration prices, CPU-share guards and the simulated backend, so that all divide a node in the same way. Plain
lists, because a node holds a dozen jobs and NumPy would be slower. Arrivals and restarts are not considered.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

_WORK_TOLERANCE = 1e-9

_MAX_TRIES = 16
"""Number of jobs that are tried for the last turn, highest rank first. If none of them would be in time, the order may
be suboptimal, but the search stays short."""


def max_min(cores: float, weights: Sequence[float], core_limits: Sequence[float]) -> list[float]:
    """Return the cores of each job by weighted max-min fairness: no job exceeds its limit, and the cores that it leaves
    go to the others by weight."""
    count = len(core_limits)
    if sum(core_limits) <= cores:
        return list(core_limits)
    given = [0.0] * count
    order = sorted(range(count), key=lambda at: core_limits[at] / weights[at])
    left, weight = cores, sum(weights)
    for place, at in enumerate(order):
        part = left * weights[at] / weight
        if core_limits[at] > part:
            level = left / weight
            for other in order[place:]:
                given[other] = level * weights[other]
            break
        given[at] = core_limits[at]
        left -= core_limits[at]
        weight -= weights[at]
    return given


def equal_ends(cores: float, core_limits: Sequence[float], left: Sequence[float]) -> list[float]:
    """Return the seconds until each job ends under equal shares; `left` is the remaining work in core-seconds."""
    if len(set(core_limits)) > 1:
        return _uneven_ends(cores, core_limits, left)
    ends = [0.0] * len(left)
    now = done = 0.0
    active = len(left)
    for at in sorted(range(active), key=left.__getitem__):
        core_limit = core_limits[at]
        now += (left[at] - done) / (core_limit if core_limit * active <= cores else cores / active)
        done = left[at]
        ends[at] = now
        active -= 1
    return ends


def _uneven_ends(cores: float, core_limits: Sequence[float], left: Sequence[float]) -> list[float]:
    ends = [0.0] * len(left)
    todo = list(left)
    active = list(range(len(left)))
    now = 0.0
    while active:
        rates = max_min(cores, [1.0] * len(active), [core_limits[at] for at in active])
        step = min(todo[at] / rate for at, rate in zip(active, rates, strict=True))
        now += step
        for at, rate in zip(active, rates, strict=True):
            todo[at] -= rate * step
        for at in active:
            if todo[at] <= _WORK_TOLERANCE:
                ends[at] = now
        active = [at for at in active if todo[at] > _WORK_TOLERANCE]
    return ends


class TurnSchedule:
    """Node whose jobs take turns: each gets all the cores it can use once the jobs before it have freed them."""

    __slots__ = ("_core_limits", "_cores_used", "_empty", "_left")

    def __init__(self, cores: float, core_limits: Sequence[float], left: Sequence[float]) -> None:
        self._core_limits, self._left = core_limits, left
        self._cores_used: list[int] = []
        """Cores of each job; empty if all jobs can use equally many: `_empty` then has an entry per running job."""
        if len(set(core_limits)) == 1:
            self._empty = [0.0] * max(1, int(cores / core_limits[0] + _WORK_TOLERANCE))
        else:
            self._empty = [0.0] * max(1, round(cores))
            self._cores_used = [min(len(self._empty), max(1, round(core_limit))) for core_limit in core_limits]

    def ends(self, order: Sequence[int]) -> list[float]:
        """Return the seconds until each job ends if they take turns in this order; indexed by job, not by turn."""
        ends = [0.0] * len(self._left)
        free = self._empty.copy()
        for at in order:
            ends[at] = self._add(free, at)
        return ends

    def order(self, due: Sequence[float], rank: Sequence[float]) -> list[int]:
        """Return the jobs in the order of their turns: by rising rank, as far as every job can still be in time.

        The order is built from the back (Smith's rule for deadlines): the last turn goes to the highest rank that would
        still be in time. If no job would, it goes to the one that is due last, which is late in any order.
        """
        left = self._left
        queue = sorted(range(len(left)), key=lambda at: (rank[at], left[at], at))
        before: list[list[float]] = []
        """By turn: the seconds after which each core is free."""
        ends: list[float] = []
        tail: list[int] = []
        while queue:
            self._extend(queue, before, ends)
            place = len(queue) - 1
            if ends[-1] > due[queue[-1]]:
                place = self._find_last_in_time(queue, before, due)
            tail.append(queue.pop(place))
            del before[place:], ends[place:]
        return tail[::-1]

    def _extend(self, queue: Sequence[int], before: list[list[float]], ends: list[float]) -> None:
        if len(before) == len(queue):
            return
        start = len(before)
        free = self._empty.copy()
        if start:
            free = before[-1].copy()
            self._add(free, queue[start - 1])
        for at in queue[start:]:
            before.append(free.copy())
            ends.append(self._add(free, at))

    def _find_last_in_time(self, queue: list[int], before: list[list[float]], due: Sequence[float]) -> int:
        for place in range(len(queue) - 2, max(-1, len(queue) - 2 - _MAX_TRIES), -1):
            at = queue[place]
            if due[at] < self._left[at] / self._core_limits[at]:
                continue
            free = before[place].copy()
            for other in queue[place + 1 :]:
                self._add(free, other)
            if self._add(free, at) <= due[at]:
                return place
        return max(range(len(queue)), key=lambda place: due[queue[place]])

    def _add(self, free: list[float], at: int) -> float:
        """Give the next turn to a job, changing `free`; return the seconds until it ends."""
        if not self._cores_used:
            end = free[0] + self._left[at] / self._core_limits[at]
            heapreplace(free, end)
            return end
        cores = self._cores_used[at]
        end = free[cores - 1] + self._left[at] / self._core_limits[at]
        free[:cores] = [end] * cores
        free.sort()
        return end
