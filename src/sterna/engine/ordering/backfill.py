"""Backfill with reservations: waiting jobs start now only if no job with a reservation is delayed by it.

Reservations follow from the expected ends of the running jobs and are computed again in every round, so that nothing is
stored. Devices are counted, nodes ignored, and no running job is stopped.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.ordering.submit_order import priority_order
from sterna.model.cluster import Ints
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import Floats

_ROUNDING_SECONDS = 1e-3
"""Tolerance for ends that are sums of floats."""
_OVERDUE_SECONDS = 1.0
"""Expected remaining time of a job that has exceeded the time it requested."""


def start_with_reservations(snapshot: Snapshot, reservations: int) -> Ints:
    """Return the workers of each job: waiting jobs in order of priority and submission, each at its minimum.

    The first `reservations` jobs that cannot start are reserved the earliest time at which they fit beside all
    reservations made before.
    """
    jobs = snapshot.jobs
    target = jobs.workers.copy()
    order = priority_order(snapshot)
    order = order[jobs.workers[order] == 0]
    costs, free = snapshot.minimum_cost[order], snapshot.free_units
    if not len(order) or free < costs.min():
        return target
    seconds = remaining_seconds(snapshot)
    running = jobs.workers > 0
    profile = FreeUnits(snapshot.now, free, snapshot.now + seconds[running], snapshot.cost(jobs.workers)[running])
    smallest_behind = np.minimum.accumulate(costs[::-1])[::-1]
    for place, row in enumerate(order.tolist()):
        if free < smallest_behind[place]:
            break
        cost, lasts = costs.item(place), seconds.item(row)
        if cost > free and not reservations:
            continue
        start = profile.earliest_start(cost, lasts)
        if start == snapshot.now:
            target[row] = jobs.minimum[row]
            free -= cost
        elif reservations and start < NEVER:
            reservations -= 1
        else:
            continue
        profile.take(start, lasts, cost)
    return target


def remaining_seconds(snapshot: Snapshot) -> Floats:
    """Return the expected remaining run time of each job at its size, or at its minimum while it waits: the requested
    time that is not used up, else the remaining work; `NEVER` if both are unknown."""
    jobs, curves = snapshot.jobs, snapshot.curves
    speed = curves.speed(jobs.curve, np.where(jobs.workers > 0, jobs.workers, np.maximum(jobs.minimum, 1)))
    requested = jobs.requested_seconds * curves.speed(jobs.curve, np.maximum(jobs.request, 1)) / speed - jobs.executed
    left = np.where(np.isnan(requested), jobs.remaining / speed, requested)
    return np.where(np.isnan(left), NEVER, np.maximum(left, _OVERDUE_SECONDS))


class FreeUnits:
    """Free units over time, as a step function from now on."""

    def __init__(self, now: float, free: int, ends: Floats, units: Ints) -> None:
        """`ends` and `units`: when each running job is expected to end, and what it holds."""
        is_known = ends < NEVER
        times, place = np.unique(ends[is_known], return_inverse=True)
        freed = np.bincount(place, weights=units[is_known], minlength=len(times)).astype(np.int64)
        self._times: Floats = np.concatenate([[now], times])
        self._free: Ints = free + np.concatenate([[0], freed.cumsum()])

    def earliest_start(self, units: int, seconds: float) -> float:
        """Return the first time from which on `units` are free for `seconds`; `NEVER` if there is none."""
        fits = self._free >= units
        change = np.diff(fits.astype(np.int8), prepend=0, append=0)
        begins = self._times[(change > 0).nonzero()[0]]
        ends = np.append(self._times, NEVER)[(change < 0).nonzero()[0]]
        long_enough = (ends - begins >= seconds - _ROUNDING_SECONDS) | (ends == NEVER)
        return float(begins[int(long_enough.argmax())]) if long_enough.any() else NEVER

    def take(self, start: float, seconds: float, units: int) -> None:
        """Reserve `units` from `start` on for `seconds`."""
        self._add_step(start)
        end = start + seconds
        if end < NEVER:
            self._add_step(end)
        self._free[(self._times >= start) & (self._times < end)] -= units

    def _add_step(self, at: float) -> None:
        place = int(self._times.searchsorted(at))
        if place == len(self._times) or self._times[place] != at:
            self._times = np.insert(self._times, place, at)
            self._free = np.insert(self._free, place, self._free[place - 1])
