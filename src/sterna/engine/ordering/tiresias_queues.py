"""Tiresias' two queues: who is in which, in what order they are served, and when that changes by itself.

A job leaves the first queue when what it used passes a threshold, and returns when it has waited a multiple of the time
it ran; what it used before is then forgiven, so it is not demoted again at once. The time it ran counts over its whole
life, or, if asked, since it last returned: then long jobs take turns for ever, at three times as many stops. User
priority is the queue a job starts in: the second one if it is below 0. Inside a queue a job that runs is never stopped
for one that waits: only a better queue can do that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit, first_fit_by_key
from sterna.errors import UserError
from sterna.model.cluster import MILLI, Bools, Ints
from sterna.model.snapshot import NEVER, Jobs, Snapshot
from sterna.model.speedup import Floats

CROSSED = 1e-6
"""A threshold counts as crossed within so much of it."""

_LEAST_THRESHOLD = 1.0
_LEAST_PROMOTE = 0.1
"""With less than these, jobs change places every few milliseconds, or before they have run at all."""

_MANY = 1 << 62
"""More workers than any job has."""


def validate_queue_params(threshold: float, promote: float) -> None:
    """Refuse what would let jobs take turns without getting on."""
    if not promote:
        return
    if not _LEAST_PROMOTE <= promote < NEVER:
        wrong = "no job would ever return" if promote == NEVER else "jobs would change places without getting on"
        asked = f"write promote=0 for never, or a number of at least {_LEAST_PROMOTE:g}"
        raise UserError(f"With promote={promote:g} {wrong}: {asked}.")
    if threshold < _LEAST_THRESHOLD:
        wrong = f"With threshold={threshold:g} and promote={promote:g} jobs would change places without getting on"
        raise UserError(f"{wrong}: write a threshold of at least {_LEAST_THRESHOLD:g} device-second, or promote=0.")


class Queues(NamedTuple):
    is_second: Bools
    """In the second queue, by row."""
    promoted: Bools | None
    """Who returns to the first queue now; None if nobody does."""
    next_return: float
    """When the next one will."""


class Served(NamedTuple):
    """Who is given how many workers."""

    workers: Ints
    stopped: list[int] | None
    """Rows that lose their workers; None: not worked out."""
    is_wanted: bool
    """Somebody of the first queue may wait for devices that others of that queue hold."""


def assign_queues(snapshot: Snapshot, threshold: float, promote: float, anew: bool) -> Queues:
    jobs = snapshot.jobs
    second = jobs.attained > threshold - CROSSED
    if jobs.has_priorities:
        second |= (jobs.priority < 0) & (jobs.promotions == 0)
    if not promote:
        return Queues(second, None, NEVER)
    rows = (second & (jobs.workers == 0)).nonzero()[0]
    if jobs.has_priorities:
        rows = rows[jobs.executed[rows] > 0]
    if not len(rows):
        return Queues(second, None, NEVER)
    due = _ran(jobs, rows, anew)
    due *= promote
    due += jobs.waiting_since.take(rows)
    first = due.item(due.argmin())
    if first > snapshot.now + CROSSED:
        return Queues(second, None, first)
    returns = due <= snapshot.now + CROSSED
    promoted = np.zeros(len(jobs), dtype=np.bool_)
    promoted[rows[returns]] = True
    second ^= promoted
    return Queues(second, promoted, float(due[~returns].min(initial=NEVER)))


def _ran(jobs: Jobs, rows: Ints | list[int], anew: bool) -> Floats:
    """Seconds that these have run, in all or since they last returned to the first queue."""
    ran = jobs.executed.take(rows)
    if anew:
        ran -= jobs.executed_before.take(rows)
    return ran


def serve_queues(snapshot: Snapshot, queues: Queues, size: Ints, gittins: float | None, keeps_running: bool) -> Served:
    """Each job's size if it fits, else 0. First queue first; inside a queue by first start, if asked those that run
    before those that wait; or, given the threshold between the queues, by falling Gittins index."""
    if snapshot.is_rigid and gittins is None:
        return _serve_rigid(snapshot, queues)
    jobs = snapshot.jobs
    order = in_turn(snapshot, queues, gittins, keeps_running)
    if jobs.barred is not None:
        order = order[~jobs.barred[order]]
    chosen = order[first_fit(snapshot.cost(size)[order], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = size[chosen]
    return Served(target, None, True)


def in_turn(snapshot: Snapshot, queues: Queues, gittins: float | None, keeps_running: bool) -> Ints:
    """All rows as they are asked."""
    jobs, second = snapshot.jobs, queues.is_second
    waits = jobs.workers == 0
    if gittins is None:
        return np.lexsort((jobs.first_start, waits & keeps_running, second))
    used = _used(jobs, queues)
    quantum = np.where(second, NEVER, np.maximum(gittins - used, 0.0))
    worth = gittins_index(snapshot.finished_service, used, quantum)
    return np.lexsort((jobs.first_start, waits & keeps_running, -worth, second))


def _used(jobs: Jobs, queues: Queues) -> Floats:
    """Device-seconds that each is judged by: those of a job that returns are forgiven from now on."""
    return jobs.attained if queues.promoted is None else np.where(queues.promoted, 0.0, jobs.attained)


def _serve_rigid(snapshot: Snapshot, queues: Queues) -> Served:
    """Serve jobs of one size: a running job of the first queue keeps its workers, so only the others are sorted."""
    jobs, cost, second = snapshot.jobs, snapshot.minimum_cost, queues.is_second
    waits = jobs.workers == 0
    if jobs.barred is not None:
        waits &= ~jobs.barred
    target = jobs.workers.copy()
    stopped: list[int] = []
    free, smallest, is_wanted = snapshot.free_units, snapshot.smallest_need, False
    first = (waits > second).nonzero()[0]
    if len(first):
        started, stopped, free = _preempt(snapshot, queues, first)
        is_wanted = len(started) < len(first)
        target[started] = jobs.minimum[started]
        target[stopped] = 0
    if free >= smallest:
        rows = ((cost <= free) & waits & second).nonzero()[0]
        chosen, _ = first_fit_by_key(rows, jobs.first_start, cost, jobs.workers, free, smallest)
        target[chosen] = jobs.minimum[chosen]
    return Served(target, stopped, is_wanted)


def _preempt(snapshot: Snapshot, queues: Queues, waiting: Ints) -> tuple[Ints, list[int], int]:
    """Start jobs that wait in the first queue, on free units and on those that the second queue holds. Return the rows
    that start, the rows of the second queue that stop for them, and the units that are left."""
    jobs, cost, key = snapshot.jobs, snapshot.minimum_cost, snapshot.jobs.first_start
    free, smallest = snapshot.free_units, snapshot.smallest_need
    need = int(cost.take(waiting).sum())
    if need <= free:
        return waiting, [], free - need
    running = (queues.is_second & (jobs.workers > 0)).nonzero()[0]
    held = int(cost.take(running).sum())
    if free + held < smallest:
        return waiting[:0], [], free
    waiting, left = first_fit_by_key(waiting, key, cost, jobs.workers, free + held, smallest)
    if left >= held:
        return waiting, [], left - held
    kept, left = first_fit_by_key(running, key, cost, jobs.workers, left, smallest)
    stops = np.ones(len(jobs), dtype=np.bool_)
    stops[kept] = False
    return waiting, running[stops[running]].tolist(), left


def next_queue_change(
    snapshot: Snapshot, queues: Queues, serving: Served, threshold: float, promote: float, anew: bool
) -> float:
    """When a job next changes queue, should nothing else happen, and that matters to anybody."""
    until = queues.next_return
    if serving.is_wanted:
        until = min(until, _next_demotion(snapshot, queues, serving.workers, threshold))
    if promote:
        stopped = _stopped(snapshot, serving)
        if len(stopped):
            ran = _ran(snapshot.jobs, stopped, anew).tolist()
            until = min(until, snapshot.now + promote * min((time for time in ran if time > 0), default=NEVER))
    return until


def _stopped(snapshot: Snapshot, serving: Served) -> Ints | list[int]:
    if serving.stopped is not None:
        return serving.stopped
    stopped: Ints = ((serving.workers == 0) & (snapshot.jobs.workers > 0)).nonzero()[0]
    return stopped


def _next_demotion(snapshot: Snapshot, queues: Queues, target: Ints, threshold: float) -> float:
    """When a job of the first queue next passes the threshold, if anybody of that queue waits for its devices."""
    jobs = snapshot.jobs
    waits = target + queues.is_second == 0
    if jobs.barred is not None:
        waits &= ~jobs.barred
    if not waits.any():
        return NEVER
    rows = (target > queues.is_second * _MANY).nonzero()[0]
    if not len(rows):
        return NEVER
    left = threshold - _used(jobs, queues).take(rows)
    left /= np.maximum(snapshot.cost(target).take(rows), 1)
    return snapshot.now + MILLI * float(left.min())


def gittins_index(finished: Floats, used: Floats, quantum: Floats) -> Floats:
    """P(ends within the quantum) / E(service used in it), for jobs that used `used`, judged by jobs that finished."""
    total = np.concatenate([[0.0], finished.cumsum()])
    count = len(finished)
    begin = finished.searchsorted(used, side="right")
    end = finished.searchsorted(used + quantum, side="right")
    alive, ends = count - begin, end - begin
    slice_ = np.where(np.isinf(quantum), 0.0, quantum)
    spent = (total[end] - total[begin]) - ends * used + (alive - ends) * slice_
    with np.errstate(divide="ignore", invalid="ignore"):
        index = ends / spent
    return np.where((alive == 0) | ~np.isfinite(index), 0.0, index)
