"""Tiresias' two queues: who is in which, in what order, and when that changes by itself.

A job leaves the first queue when what it used passes a threshold, and returns when it has waited a multiple of the
time it ran; what it used before is then forgiven, so it is not demoted again at once. User priority is the queue a
job starts in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
    order: Ints
    """All rows, in the order in which they are served."""
    promoted: Bools | None
    """Who returns to the first queue now; None if nobody does."""
    until: float
    """When a job next changes queue though nothing happens."""


def queues_of(snapshot: Snapshot, threshold: float, promote: float, gittins: bool) -> Queues:
    jobs = snapshot.jobs
    used = jobs.attained
    demoted = used > threshold - CROSSED
    if jobs.has_priorities:
        demoted |= jobs.priority > 0
    until = _next_demotion(snapshot, used, threshold, demoted)
    promoted = None
    if promote:
        promoted, due = _promotions(snapshot, demoted, promote)
        until = min(until, due)
        if promoted is not None:
            demoted &= ~promoted
    return Queues(demoted, _served(snapshot, demoted, used, threshold, gittins), promoted, until)


def _promotions(snapshot: Snapshot, demoted: Bools, promote: float) -> tuple[Bools | None, float]:
    """Who returns to the first queue now, if anyone, and when the next one will."""
    jobs = snapshot.jobs
    rows = (demoted > jobs.workers).nonzero()[0]
    if jobs.has_priorities:
        rows = rows[jobs.executed[rows] > 0]
    if not len(rows):
        return None, NEVER
    due = jobs.executed.take(rows)
    due *= promote
    due += jobs.waiting_since.take(rows)
    first = due.min()
    if first > snapshot.now + CROSSED:
        return None, float(first)
    returns = due <= snapshot.now + CROSSED
    promoted = np.zeros(len(jobs), dtype=np.bool_)
    promoted[rows[returns]] = True
    return promoted, float(due[~returns].min(initial=NEVER))


def _next_demotion(snapshot: Snapshot, used: Floats, threshold: float, demoted: Bools) -> float:
    workers = snapshot.jobs.workers
    rows = (workers > demoted * _MANY).nonzero()[0]
    if not len(rows):
        return NEVER
    left = threshold - used.take(rows)
    left /= np.maximum(snapshot.cost(workers).take(rows), 1)
    return snapshot.now + MILLI * float(left.min())


def _served(snapshot: Snapshot, queue: Bools, used: Floats, threshold: float, gittins: bool) -> Ints:
    """First queue first; inside, by first start (never started: last, in submit order), or by falling Gittins index."""
    jobs = snapshot.jobs
    if not gittins or not len(snapshot.finished_service):
        return np.lexsort((jobs.first_start, queue))
    quantum = np.where(queue, NEVER, np.maximum(threshold - used, 0.0))
    index = gittins_index(snapshot.finished_service, used, quantum)
    return np.lexsort((jobs.first_start, -index, queue))


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
