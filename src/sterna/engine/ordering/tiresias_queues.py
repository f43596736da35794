"""The two queues of Tiresias: the queue of each job, the order of serving, and the time of the next change.

A job leaves the first queue when the device-seconds it used exceed a threshold, and returns when it has waited a
multiple of the time it ran; its use then counts from 0, so that it is not demoted again at once. The time it ran counts
from its first start or, with the policy's option, from its last return: long jobs then alternate until they end, with
three times as many stops. A job with a priority below 0 starts in the second queue. With `keeps_running` a waiting job
preempts running jobs of the second queue only, and only from the first queue; without it the job that started first
goes first in each queue, whether it runs or not.

Cython compiles this file as it is, with the C types in `tiresias_queues.pxd`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit, first_fit_by_key
from sterna.errors import UserError
from sterna.model.cluster import MILLI, Bools, Ints
from sterna.model.snapshot import NEVER, Jobs, Snapshot
from sterna.model.speedup import Floats

_IS_COMPILED = not __file__.endswith(".py")

CROSSED = 1e-6
"""Tolerance within which a threshold counts as crossed."""

_LEAST_THRESHOLD = 1.0
_LEAST_PROMOTE = 0.1
"""Below these, jobs would swap every few milliseconds, or before they have run at all."""


def validate_queue_params(threshold: float, promote: float) -> None:
    """Raise `UserError` for parameters under which jobs would swap without making progress."""
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
    """Jobs that return to the first queue now; None if there are none."""
    next_return: float
    """Time of the next return to the first queue."""


def assign_queues(snapshot: Snapshot, threshold: float, promote: float, since_promotion: bool) -> Queues:
    """Return the queue of each job; `promote` is the multiple of its run time that a job waits for its return."""
    jobs, now = snapshot.jobs, snapshot.now + CROSSED
    is_second = jobs.attained > threshold - CROSSED
    if jobs.has_priorities:
        is_second |= (jobs.priority < 0) & (jobs.promotions == 0)
    if not promote:
        return Queues(is_second, None, NEVER)
    promoted = np.zeros(len(is_second), dtype=np.bool_)
    second, returns = is_second.view(np.uint8), promoted.view(np.uint8)
    workers, executed, ran = (
        _readable(jobs.workers),
        _readable(jobs.executed),
        _readable(_run_seconds(jobs, since_promotion)),
    )
    waiting_since, is_ranked = _readable(jobs.waiting_since), jobs.has_priorities
    next_return, any_returns = NEVER, False
    for row in range(len(workers)):
        if second[row] and not workers[row] and (executed[row] > 0 or not is_ranked):
            due = ran[row] * promote + waiting_since[row]
            if due <= now:
                second[row], returns[row], any_returns = 0, 1, True
            elif due < next_return:
                next_return = due
    return Queues(is_second, promoted if any_returns else None, next_return)


def due_returns(snapshot: Snapshot, threshold: float, promote: float, since_promotion: bool) -> Bools | None:
    """Return the jobs that return to the first queue now, for policies that need no order because all jobs fit."""
    is_waiting = snapshot.held_units < snapshot.least_units
    return assign_queues(snapshot, threshold, promote, since_promotion).promoted if promote and is_waiting else None


def _run_seconds(jobs: Jobs, since_promotion: bool) -> Floats:
    """Return the seconds that each job has run, in all or since it last returned to the first queue."""
    return jobs.executed - jobs.executed_before if since_promotion else jobs.executed


def serve_queues(snapshot: Snapshot, queues: Queues, size: Ints, gittins: float | None, keeps_running: bool) -> Ints:
    """Return the size of each job that fits, else 0: first queue first, inside a queue by first start.

    With `keeps_running` the running jobs of a queue precede the waiting ones. Given the threshold between the queues as
    `gittins`, jobs of a queue are served by falling Gittins index.
    """
    if snapshot.is_rigid and gittins is None and keeps_running:
        return _serve_rigid(snapshot, queues)
    jobs = snapshot.jobs
    order = queue_order(snapshot, queues, gittins, keeps_running)
    if jobs.barred is not None:
        order = order[~jobs.barred[order]]
    chosen = order[first_fit(snapshot.cost(size)[order], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = size[chosen]
    return target


def queue_order(snapshot: Snapshot, queues: Queues, gittins: float | None, keeps_running: bool) -> Ints:
    """Return all rows in the order of serving."""
    jobs, second = snapshot.jobs, queues.is_second
    waits = jobs.workers == 0
    if gittins is None:
        return np.lexsort((jobs.first_start, waits & keeps_running, second))
    used = _service_in_queue(jobs, queues)
    quantum = np.where(second, NEVER, np.maximum(gittins - used, 0.0))
    worth = gittins_index(snapshot.finished_service, used, quantum)
    return np.lexsort((jobs.first_start, waits & keeps_running, -worth, second))


def _service_in_queue(jobs: Jobs, queues: Queues) -> Floats:
    """Return the device-seconds that count for each job: 0 for a job that returns to the first queue now."""
    return jobs.attained if queues.promoted is None else np.where(queues.promoted, 0.0, jobs.attained)


def _serve_rigid(snapshot: Snapshot, queues: Queues) -> Ints:
    """Serve jobs of one size. Running jobs of the first queue keep their workers; waiting ones start on free units and
    on those of the second queue, which loses its last jobs for them; the second queue gets what is left."""
    jobs, cost, key, smallest = snapshot.jobs, snapshot.minimum_cost, snapshot.jobs.first_start, snapshot.smallest_need
    waiting, running, queued, need, held = _split_rows(snapshot, queues)
    target, free, minimum = jobs.workers.copy(), snapshot.free_units, jobs.minimum
    if len(waiting):
        if need <= free:
            target[waiting] = minimum[waiting]
            free -= need
        elif free + held >= smallest:
            started, left = first_fit_by_key(waiting, key, cost, jobs.workers, free + held, smallest)
            target[started] = minimum[started]
            free = left - held
            if left < held:
                kept, free = first_fit_by_key(running, key, cost, jobs.workers, left, smallest)
                target[running] = 0
                target[kept] = minimum[kept]
    if free >= smallest and len(queued):
        started, _ = first_fit_by_key(queued, key, cost, jobs.workers, free, smallest)
        target[started] = minimum[started]
    return target


def _split_rows(snapshot: Snapshot, queues: Queues) -> tuple[Ints, Ints, Ints, int, int]:
    """Return the rows that wait in the first queue, run in the second and wait in the second; then the units that
    the first of these need and that the second hold."""
    jobs, costs = snapshot.jobs, _readable(snapshot.minimum_cost)
    second, workers, barred = queues.is_second.view(np.uint8), _readable(jobs.workers), _read_barred(jobs)
    rows = np.empty((3, len(workers)), dtype=np.int64)
    table = rows
    waiting = running = queued = need = held = 0
    for row in range(len(workers)):
        if workers[row]:
            if second[row]:
                table[1, running] = row
                running += 1
                held += costs[row]
        elif barred[row]:
            continue
        elif second[row]:
            table[2, queued] = row
            queued += 1
        else:
            table[0, waiting] = row
            waiting += 1
            need += costs[row]
    return rows[0, :waiting], rows[1, :running], rows[2, :queued], need, held


def _read_barred(jobs: Jobs) -> Any:
    return np.zeros(len(jobs.workers), dtype=np.uint8) if jobs.barred is None else jobs.barred.view(np.uint8)


def next_queue_change(
    snapshot: Snapshot, queues: Queues, target: Ints, threshold: float, promote: float, since_promotion: bool
) -> float:
    """Return when a job next changes queue without any event, if another job can gain by it."""
    jobs, now = snapshot.jobs, snapshot.now
    second, barred, given = queues.is_second.view(np.uint8), _read_barred(jobs), _readable(target)
    workers, ran = _readable(jobs.workers), _readable(_run_seconds(jobs, since_promotion))
    used, cost = _readable(_service_in_queue(jobs, queues)), _readable(snapshot.cost(target))
    until, demotion, is_wanted = queues.next_return, NEVER, False
    for row in range(len(given)):
        if given[row]:
            if not second[row]:
                left = (threshold - used[row]) / max(cost[row], 1)
                demotion = min(demotion, left)
            continue
        if not second[row] and not barred[row]:
            is_wanted = True
        if promote and workers[row] and ran[row] > 0:
            until = min(until, now + promote * ran[row])
    return min(until, now + MILLI * demotion) if is_wanted else until


def _readable(column: Any) -> Any:
    """Return the column as compiled code or Python reads it fastest: as it is, or as a list."""
    return column if _IS_COMPILED else column.tolist()


def gittins_index(finished: Floats, used: Floats, quantum: Floats) -> Floats:
    """Return P(ends within the quantum) / E(service used in it) of jobs that used `used`, from the finished jobs."""
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
