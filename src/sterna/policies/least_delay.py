"""`least-delay`: each device to the job through which it spares all jobs together most waiting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.device_worth import device_worth, remaining_seconds, speed_at_minimum
from sterna.engine.ordering.worth_fill import Items, fill_by_worth, sort_items
from sterna.rules import Floats, Ints, Snapshot, Target, policy

_RUNNING = 1.5
"""Factor by which a running job counts as smaller, and its minimum as worth more, than if it waited: a job is stopped
only for one of clearly more worth."""

_HELD = 1.2
"""Worth of a worker above the minimum that a job has over one that it would get."""


@policy("least-delay")
@dataclass(frozen=True)
class LeastDelay:
    """Each device to the job through which it spares all jobs together most waiting.

    The worth of a device to a job rises with the number of jobs that are at least as large, the more so the scarcer
    devices are, and falls with the devices that the job could use. A job enters with its whole minimum; a further
    worker counts with the speed-up that it adds. Devices are filled by worth, and what a job has counts more than what
    it would get. A wide job that was passed is forced in if the total worth rises. The engine takes back what does not
    pay, and asks again.
    """

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all, order=partial(_order, snapshot))
        return Target(_allocate(snapshot), order=partial(_order, snapshot))


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


def _allocate(snapshot: Snapshot) -> Ints:
    """Return the workers of each job, filled by worth."""
    jobs, most = snapshot.jobs, _most_useful(snapshot)
    worth, speed = _worth(snapshot, remaining_seconds(snapshot), most), speed_at_minimum(snapshot)
    rows = np.arange(len(jobs)) if jobs.barred is None else (~jobs.barred).nonzero()[0]
    reach = np.maximum(most - jobs.minimum, 0)[rows]
    of = np.repeat(rows, reach)
    count = np.repeat(jobs.minimum[rows] - reach.cumsum() + reach, reach) + np.arange(len(of))
    gain = snapshot.curves.gain(jobs.curve[of], count) * (jobs.minimum / speed)[of]
    gain = np.minimum(gain, 1.0)  # rounding must not put a further worker before the minimum
    growth = worth[of] * gain * np.where(count < jobs.workers[of], _HELD, 1.0)
    entry = worth * np.where(jobs.workers > 0, _RUNNING, 1.0)
    lowest = int(jobs.priority.min()) if jobs.has_priorities else 0
    items = Items(
        np.concatenate([rows, of]),
        np.concatenate([jobs.minimum[rows], np.ones(len(of), dtype=np.int64)]),
        np.concatenate([snapshot.minimum_cost[rows], snapshot.need[of]]),
        np.concatenate([entry[rows], growth]),
        np.arange(len(rows) + len(of)) < len(rows),
        np.concatenate([jobs.priority[rows], np.full(len(of), lowest)]),
    )
    return fill_by_worth(sort_items(items), len(jobs), snapshot.units, snapshot.smallest_need)
