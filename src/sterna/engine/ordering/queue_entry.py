"""Tiresias' queues as its public simulator serves them: any number of queues, each in the order of entry.

A job moves to the next queue when its device-seconds reach a threshold. Inside a queue come first the running jobs,
then those that ran in it and were stopped, the last one stopped first, then those that entered it and have not run
since. A job that reaches a threshold while it runs enters behind the waiting jobs of the next queue, and may be stopped
for them. There is no promotion.

The public simulator keeps these queues as lists. Here the order follows from the columns of the snapshot: the
device-seconds used in the queue, the last start, and the time at which a job last began to wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sterna.engine.ordering.tiresias_queues import CROSSED
from sterna.model.cluster import MILLI, Bools, Ints
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import Floats

_JUST_ENTERED = 10 * CROSSED
"""Device-seconds in a queue up to which a job has not run in it."""
_SAME_TIME = 1e-6
_SAME_SERVICE = 1e-3


def queue_number(snapshot: Snapshot, thresholds: Sequence[float]) -> Ints:
    """Return the queue of each job, 0 first; a job with a priority below 0 starts in queue 1."""
    jobs = snapshot.jobs
    queue: Ints = np.searchsorted(np.asarray(thresholds), jobs.attained + CROSSED, side="right")
    return np.maximum(queue, jobs.priority < 0) if jobs.has_priorities else queue


def entry_order(snapshot: Snapshot, thresholds: Sequence[float]) -> Ints:
    """Return all rows in the order of serving."""
    jobs, now = snapshot.jobs, snapshot.now
    queue = queue_number(snapshot, thresholds)
    floor = np.array([0.0, *thresholds])[queue]
    inside = jobs.attained - np.where(jobs.attained + CROSSED < floor, 0.0, floor)
    runs, devices = jobs.workers > 0, snapshot.cost(jobs.workers) / MILLI
    is_new = (inside <= _JUST_ENTERED) & ~(runs & (devices == 0))
    ran_seconds = np.divide(inside, devices, out=np.zeros(len(jobs)), where=devices > 0)
    entered = np.where(runs, now - ran_seconds, NEVER)
    resumed = entered < jobs.last_start - _SAME_TIME  # it ran in the queue before its last start
    keys = _keys(snapshot, runs, is_new, np.maximum(entered, jobs.last_start), resumed)
    return np.lexsort((*keys[::-1], queue))


def _keys(snapshot: Snapshot, runs: Bools, is_new: Bools, began: Floats, resumed: Bools) -> tuple[Floats, ...]:
    """Return the sort keys inside a queue, the first one first."""
    jobs, now = snapshot.jobs, snapshot.now
    waiting_since = jobs.waiting_since
    settled, stopped = runs & ~is_new, ~runs & ~is_new
    has_just_started = jobs.last_start >= now - snapshot.restart_seconds - _SAME_SERVICE
    is_demoted_now = runs & is_new & (jobs.last_start > -NEVER) & ~has_just_started
    turn = np.select([settled, stopped], [0.0, 1.0], 2.0)
    time = np.select(
        [settled, stopped, is_demoted_now], [np.round(began, 6), -waiting_since, np.full(len(jobs), now)], waiting_since
    )
    return turn, time, (settled & ~resumed).astype(np.float64), np.where(resumed, -waiting_since, waiting_since)


def next_demotion(snapshot: Snapshot, target: Ints, thresholds: Sequence[float]) -> float:
    """Return when a job with workers next reaches a threshold; `NEVER` if no job waits or none will."""
    jobs = snapshot.jobs
    given = target > 0
    if given.all():
        return NEVER
    limits = np.array([*thresholds, NEVER])
    left = limits[np.searchsorted(limits, jobs.attained + CROSSED, side="right").clip(max=len(thresholds))]
    devices = snapshot.cost(target) / MILLI
    seconds = np.divide(left - jobs.attained, devices, out=np.full(len(jobs), NEVER), where=devices > 0)
    return snapshot.now + float(seconds[given].min(initial=NEVER))
