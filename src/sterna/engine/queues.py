"""Tiresias' two queues: who is in which, in what order they are served, and when that changes by itself.

A job leaves the first queue when what it used passes a threshold, and returns when it has waited a multiple of the time
it ran; what it used before is then forgiven, so it is not demoted again at once. User priority is the queue a job
starts in. Inside a queue a job that runs is never stopped for one that waits: only a better queue can do that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sterna.engine.walk import walk, walk_by
from sterna.model.cluster import MILLI, Bools, Ints
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import Floats

CROSSED = 1e-6
"""A threshold counts as crossed within so much of it."""

_MANY = 1 << 62
"""More workers than any job has."""


class Queues(NamedTuple):
    is_second: Bools
    """In the second queue, by row."""
    promoted: Bools | None
    """Who returns to the first queue now; None if nobody does."""
    next_return: float
    """When the next one will."""


def queues_of(snapshot: Snapshot, threshold: float, promote: float) -> Queues:
    jobs = snapshot.jobs
    demoted = jobs.attained > threshold - CROSSED
    if jobs.has_priorities:
        demoted |= (jobs.priority > 0) & (jobs.promotions == 0)
    if not promote:
        return Queues(demoted, None, NEVER)
    promoted, next_return = _promotions(snapshot, demoted, promote)
    if promoted is not None:
        demoted &= ~promoted
    return Queues(demoted, promoted, next_return)


def _promotions(snapshot: Snapshot, demoted: Bools, promote: float) -> tuple[Bools | None, float]:
    jobs = snapshot.jobs
    rows = (demoted > jobs.workers).nonzero()[0]
    if jobs.has_priorities:
        rows = rows[jobs.executed[rows] > 0]
    if not len(rows):
        return None, NEVER
    due = jobs.executed.take(rows)
    due *= promote
    due += jobs.waiting_since.take(rows)
    first = float(due.min())
    if first > snapshot.now + CROSSED:
        return None, first
    returns = due <= snapshot.now + CROSSED
    promoted = np.zeros(len(jobs), dtype=np.bool_)
    promoted[rows[returns]] = True
    return promoted, float(due[~returns].min(initial=NEVER))


def served(snapshot: Snapshot, queues: Queues, size: Ints, gittins: float | None, keeps_running: bool) -> Ints:
    """Each job's size if it fits, else 0. First queue first; inside a queue by first start, if asked those that run
    before those that wait; or, given the threshold between the queues, by falling Gittins index."""
    if snapshot.is_rigid and gittins is None:
        return _exchanged(snapshot, queues.is_second)
    jobs, second = snapshot.jobs, queues.is_second
    if gittins is None:
        order = np.lexsort((jobs.first_start, (jobs.workers == 0) & keeps_running, second))
    else:
        quantum = np.where(second, NEVER, np.maximum(gittins - jobs.attained, 0.0))
        worth = gittins_index(snapshot.finished_service, jobs.attained, quantum)
        order = np.lexsort((jobs.first_start, jobs.workers == 0, -worth, second))
    if jobs.barred is not None:
        order = order[~jobs.barred[order]]
    chosen = order[walk(snapshot.cost(size)[order], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = size[chosen]
    return target


def _exchanged(snapshot: Snapshot, second: Bools) -> Ints:
    """The same for jobs of one size, without looking at those that run undisturbed."""
    jobs = snapshot.jobs
    waits = jobs.workers == 0
    if jobs.barred is not None:
        waits &= ~jobs.barred
    target = jobs.workers.copy()
    free, smallest = snapshot.free_units, snapshot.smallest_need
    first = (waits > second).nonzero()[0]
    if len(first):
        free = _make_way(snapshot, second, first, target)
    if free >= smallest:
        cost = snapshot.cost(jobs.minimum)
        rows = ((cost <= free) & waits & second).nonzero()[0]
        if len(rows):
            sizes = cost.take(rows)
            places, _ = walk_by(jobs.first_start.take(rows), sizes, sizes, free, smallest)
            target[rows[places]] = jobs.minimum[rows[places]]
    return target


def _make_way(snapshot: Snapshot, second: Bools, first: Ints, target: Ints) -> int:
    """Start jobs of the first queue, on free devices and on those of the second queue (changes `target`); what is
    left."""
    jobs, smallest = snapshot.jobs, snapshot.smallest_need
    cost = snapshot.cost(jobs.minimum)
    low = (jobs.workers * second).nonzero()[0]
    held = cost.take(low)
    room = snapshot.free_units + int(held.sum())
    if room < smallest:
        return snapshot.free_units
    started = jobs.first_start.take(first)
    ran = (started < NEVER).nonzero()[0]
    if len(ran):
        first = np.concatenate([first[ran[started[ran].argsort(kind="stable")]], np.delete(first, ran)])
    sizes = cost.take(first)
    fits = walk(sizes, room, smallest)
    chosen = first[fits]
    target[chosen] = jobs.minimum[chosen]
    room -= int(sizes.dot(fits))
    if room >= int(held.sum()):
        return room - int(held.sum())
    stay, room = walk_by(jobs.first_start.take(low), held, held, room, smallest)
    target[low] = 0
    target[low[stay]] = jobs.workers[low[stay]]
    return room


def next_change(snapshot: Snapshot, queues: Queues, target: Ints, threshold: float, promote: float) -> float:
    """When a job next changes queue, should nothing else happen, and that matters to anybody."""
    until = min(queues.next_return, _next_demotion(snapshot, queues, target, threshold))
    if promote:
        stopped = ((target == 0) & (snapshot.jobs.workers > 0)).nonzero()[0]
        if len(stopped):
            ran = snapshot.jobs.executed.take(stopped)
            until = min(until, snapshot.now + promote * float(ran.min(initial=NEVER, where=ran > 0)))
    return until


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
    used = jobs.attained if queues.promoted is None else np.where(queues.promoted, 0.0, jobs.attained)
    left = threshold - used.take(rows)
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
