"""`least-delay`: each device to the job through which it shortens the waiting of most jobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.device_worth import device_worth, remaining_seconds
from sterna.engine.ordering.worth_fill import Items, fill_by_worth, sort_items
from sterna.engine.price import ChangeCosts
from sterna.rules import Bools, Floats, Ints, Snapshot, Target, policy

_RUNNING = 1.5
"""Worth of the minimum of a running job over that of a waiting one: a job is stopped only for one of clearly more."""

_HELD = 1.2
"""Worth of a worker above the minimum that a job has over one that it would get."""

_PAYBACK = 3.0
"""Restarts that growth has to save, and that a job has to have left to be shrunk or stopped."""

_MAX_FILLS = 5
"""Upper bound on fills; in the last one no running job is resized. One suffices in 49 of 50 rounds."""


@policy("least-delay")
@dataclass(frozen=True)
class LeastDelay:
    """Each device to the job through which it shortens the waiting of most jobs; changes only where they pay.

    The worth of a device rises with the number of jobs that are at least as large as its job, and falls with the
    device-seconds that the job still needs. A job enters with its whole minimum; a further worker counts with the
    speed-up that it adds. Devices are filled by worth, and what a job has counts more than what it would get. A wide
    job that was passed is forced in if the total worth rises. Growth that saves less than three restarts, and
    shrinking a job that soon ends, are left out.
    """

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all, order=partial(_order, snapshot))
        return Target(_Allocation(snapshot).allocate(), order=partial(_order, snapshot))


def _order(snapshot: Snapshot) -> Ints:
    """Return all rows in the order of entry: higher priority first, then by worth, running before waiting jobs."""
    worth = device_worth(snapshot, remaining_seconds(snapshot))
    jobs = snapshot.jobs
    return np.lexsort((jobs.workers == 0, -worth, -jobs.priority))


class _Allocation:
    """The columns of one call, over all rows."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs, curves = snapshot.jobs, snapshot.curves
        self._snapshot = snapshot
        self._rows = np.arange(len(jobs)) if jobs.barred is None else (~jobs.barred).nonzero()[0]
        self._seconds = remaining_seconds(snapshot)
        self._worth = device_worth(snapshot, self._seconds)
        self._speed = np.maximum(curves.speed(jobs.curve, jobs.minimum), 1e-9)
        """Speed at the minimum."""
        self._most = np.minimum(jobs.maximum, np.maximum(curves.useful[jobs.curve], jobs.minimum))
        """Workers beyond which no job gains."""
        self._may_stay = (jobs.workers >= jobs.minimum) & (jobs.workers <= jobs.maximum) & (jobs.workers > 0)

    def allocate(self) -> Ints:
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        if snapshot.changes_are_free:
            return self._fill(self._most, np.zeros(len(jobs), dtype=np.bool_))
        costs = ChangeCosts(snapshot)
        left = np.where(self._may_stay, self._seconds_at(np.maximum(jobs.workers, 1)), 0.0)
        kept = self._may_stay & (left <= _PAYBACK * np.minimum(costs.stop_seconds, costs.resize_seconds))
        gain = left - self._seconds_at(self._most)
        caps = np.where(self._may_stay & (gain <= _PAYBACK * costs.resize_seconds), jobs.workers, self._most)
        for fills in range(1, _MAX_FILLS + 1):
            target = self._fill(caps, kept)
            saved = left - self._seconds_at(target)
            grows = self._may_stay & (target > jobs.workers) & (saved <= _PAYBACK * costs.resize_seconds)
            shrinks = self._may_stay & (target < jobs.workers) & (target > 0)
            freed = (jobs.workers - target) / np.maximum(jobs.workers, 1)
            shrinks &= freed * left <= _PAYBACK * costs.resize_seconds
            if not grows.any() and not shrinks.any():
                break
            caps = np.where(grows if fills < _MAX_FILLS - 1 else self._may_stay, jobs.workers, caps)
            kept = kept | shrinks
        return target

    def _seconds_at(self, workers: Ints) -> Floats:
        """Return the remaining time of each job with this many workers, at least one."""
        speed = self._snapshot.curves.speed(self._snapshot.jobs.curve, np.maximum(workers, 1))
        return self._seconds * self._speed / np.maximum(speed, 1e-9)

    def _fill(self, caps: Ints, kept: Bools) -> Ints:
        """Return the workers by worth; no job gets more than its cap, and those in `kept` keep what they have."""
        snapshot, jobs, rows = self._snapshot, self._snapshot.jobs, self._rows
        is_running, worth = jobs.workers > 0, self._worth
        reach = np.maximum(np.where(kept, jobs.workers, caps) - jobs.minimum, 0)[rows]
        of = np.repeat(rows, reach)
        count = np.repeat(jobs.minimum[rows] - reach.cumsum() + reach, reach) + np.arange(len(of))
        gain = snapshot.curves.gain(jobs.curve[of], count) * (jobs.minimum / self._speed)[of]
        growth = worth[of] * gain * np.where(count < jobs.workers[of], _HELD, 1.0)
        lowest, highest = (int(jobs.priority.min()), int(jobs.priority.max())) if jobs.has_priorities else (0, 0)
        level = np.where(kept, highest + 1, jobs.priority)
        entry = worth * np.where(is_running, _RUNNING, 1.0)
        items = Items(
            np.concatenate([rows, of]),
            np.concatenate([jobs.minimum[rows], np.ones(len(of), dtype=np.int64)]),
            np.concatenate([snapshot.minimum_cost[rows], snapshot.need[of]]),
            np.concatenate([entry[rows], growth]),
            np.arange(len(rows) + len(of)) < len(rows),
            np.concatenate([level[rows], np.where(kept[of], highest + 1, lowest)]),
        )
        return fill_by_worth(sort_items(items), len(jobs), snapshot.units, snapshot.smallest_need)
