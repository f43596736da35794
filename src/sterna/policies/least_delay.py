"""`least-delay`: each device to the job through which it spares all jobs together most waiting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.device_worth import device_worth, remaining_seconds, speed_at_minimum
from sterna.engine.ordering.worth_fill import Items, fill_by_worth, sort_items
from sterna.engine.price import ChangeCosts
from sterna.engine.priced_policy import PAYBACK
from sterna.rules import Bools, Floats, Ints, Snapshot, Target, policy

_RUNNING = 1.5
"""Factor by which a running job counts as smaller, and its minimum as worth more, than if it waited: a job is stopped
only for one of clearly more worth."""

_HELD = 1.2
"""Worth of a worker above the minimum that a job has over one that it would get."""

_MAX_FILLS = 6
"""Upper bound on fills; in the second half no running job grows, in the last none is stopped or shrunk."""


@policy("least-delay")
@dataclass(frozen=True)
class LeastDelay:
    """Each device to the job through which it spares all jobs together most waiting; changes only where they pay.

    The worth of a device to a job rises with the number of jobs that are at least as large, the more so the scarcer
    devices are, and falls with the devices that the job could use. A job enters with its whole minimum; a further
    worker counts with the speed-up that it adds. Devices are filled by worth, and what a job has counts more than what
    it would get. A wide job that was passed is forced in if the total worth rises. Growth, stops and shrinks that
    would not pay the engine's price are left out before it asks, so that their devices go to the next best job.
    """

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all, order=partial(_order, snapshot))
        return Target(_Allocation(snapshot).allocate(), order=partial(_order, snapshot))


def _order(snapshot: Snapshot) -> Ints:
    """Return all rows in the order of entry: higher priority first, then by worth, running before waiting jobs."""
    jobs = snapshot.jobs
    worth = _worth(snapshot, remaining_seconds(snapshot), _most_useful(snapshot))
    return np.lexsort((jobs.workers == 0, -worth, -jobs.priority))


def _worth(snapshot: Snapshot, seconds: Floats, most: Ints) -> Floats:
    return device_worth(snapshot, seconds / np.where(snapshot.jobs.workers > 0, _RUNNING, 1.0), most)


def _most_useful(snapshot: Snapshot) -> Ints:
    """Return the workers beyond which each job does not gain or may not grow."""
    jobs = snapshot.jobs
    return np.minimum(jobs.maximum, np.maximum(snapshot.curves.useful[jobs.curve], jobs.minimum))


def _outranked_rows(snapshot: Snapshot) -> Bools:
    """Return the jobs of lower priority than some waiting job."""
    jobs = snapshot.jobs
    waits = jobs.workers == 0 if jobs.barred is None else (jobs.workers == 0) & ~jobs.barred
    if not jobs.has_priorities or not waits.any():
        return np.zeros(len(jobs), dtype=np.bool_)
    outranked: Bools = jobs.priority < jobs.priority[waits].max()
    return outranked


class _Allocation:
    """The columns of one call, over all rows."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        self._snapshot = snapshot
        self._rows = np.arange(len(jobs)) if jobs.barred is None else (~jobs.barred).nonzero()[0]
        self._seconds = remaining_seconds(snapshot)
        self._most = _most_useful(snapshot)
        self._worth = _worth(snapshot, self._seconds, self._most)
        self._speed = speed_at_minimum(snapshot)
        self._may_stay = (jobs.workers >= jobs.minimum) & (jobs.workers <= jobs.maximum) & (jobs.workers > 0)
        self._is_protected = self._may_stay & ~_outranked_rows(snapshot)
        """Running jobs that change only if that pays: a higher priority that waits outranks the price."""
        costs = ChangeCosts(snapshot)
        earlier = jobs.spent / np.maximum(costs.devices, 1e-9)
        self._stop = costs.stop_seconds + earlier
        self._resize = costs.resize_seconds + earlier
        """Seconds that a stop or a resize and all earlier changes of the job cost it."""
        self._left = np.where(self._may_stay, self._seconds_at(jobs.workers), 0.0)
        """Remaining time of running jobs at their present size."""

    def allocate(self) -> Ints:
        """Return the workers of each job; what does not pay is left out of the next fill."""
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        if snapshot.changes_are_free:
            return self._fill(self._most, np.zeros(len(jobs), dtype=np.bool_))
        left, resize = self._left, self._resize
        kept = self._is_protected & (left <= PAYBACK * np.minimum(self._stop, resize))
        cannot_grow = self._may_stay & (left - self._seconds_at(self._most) <= PAYBACK * resize)
        caps = np.where(cannot_grow, jobs.workers, self._most)
        for fill in range(_MAX_FILLS):
            if fill == _MAX_FILLS // 2:
                caps = np.where(self._may_stay, jobs.workers, caps)
            if fill == _MAX_FILLS - 1:
                kept = self._is_protected
            target = self._fill(caps, kept)
            grows, victims = self._unpaid_growth(target), self._unpaid_victims(target)
            if not grows.any() and not victims.any():
                break
            caps, kept = np.where(grows, jobs.workers, caps), kept | victims
        return target

    def _unpaid_growth(self, target: Ints) -> Bools:
        """Return the running jobs that whose growth does not pay for itself and for their earlier changes."""
        saved = self._left - self._seconds_at(target)
        grows = self._may_stay & (target > self._snapshot.jobs.workers)
        return grows & (saved <= PAYBACK * self._resize)

    def _unpaid_victims(self, target: Ints) -> Bools:
        """Return the running jobs that would stop or shrink for less than that costs them.

        Jobs that start would otherwise wait for the rest of the victim's time; the devices that are left are worth what
        growth saves with them. The cheapest victims count as those that make room for starts.
        """
        snapshot, jobs = self._snapshot, self._snapshot.jobs
        unpaid = np.zeros(len(target), dtype=np.bool_)
        rows = (self._is_protected & (target < jobs.workers)).nonzero()[0]
        if not len(rows):
            return unpaid
        held = snapshot.cost(jobs.workers)
        change = snapshot.cost(target) - held
        starts = (jobs.workers == 0) & (target > 0)
        grows = ((jobs.workers > 0) & (target > jobs.workers)).nonzero()[0]
        saved = (self._left - self._seconds_at(target))[grows] * held[grows]
        per_unit = float((saved * change[grows] / np.maximum(held[grows], 1)).sum()) / max(int(change[grows].sum()), 1)
        seconds = np.where(target > 0, self._resize, self._stop)[rows]
        freed = -change[rows]
        price = held[rows] * seconds / np.maximum(freed, 1)
        order = np.lexsort((rows, price))
        before = freed[order].cumsum() - freed[order]
        for_starts = before < int(change[starts].sum()) - snapshot.free_units
        gain = np.where(for_starts, self._left[rows[order]], per_unit)
        unpaid[rows[order]] = gain <= PAYBACK * price[order]
        return unpaid

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
        gain = np.minimum(gain, 1.0)  # rounding must not put a further worker before the minimum
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
