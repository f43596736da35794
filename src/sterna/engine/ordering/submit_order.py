"""Submit order: give each job its minimum in order, and distribute what is left one worker at a time."""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot


def priority_order(snapshot: Snapshot) -> Ints:
    """Return the rows that may run, higher priority first, then in submit order."""
    jobs = snapshot.jobs
    order = (-jobs.priority).argsort(kind="stable") if jobs.has_priorities else np.arange(len(jobs))
    return order if jobs.barred is None else order[~jobs.barred[order]]


def fit_minimum_in_order(snapshot: Snapshot) -> Ints:
    """Return the minimum of each job that fits when all jobs are taken in priority and submit order; else 0."""
    if snapshot.all_fit:
        return snapshot.minimum_for_all
    jobs, cost = snapshot.jobs, snapshot.minimum_cost
    if jobs.barred is None and not jobs.has_priorities:
        return jobs.minimum * first_fit(cost, snapshot.units, snapshot.smallest_need)
    order = priority_order(snapshot)
    chosen = order[first_fit(cost[order], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = jobs.minimum[chosen]
    return target


def distribute_round_robin(target: Ints, order: Ints, snapshot: Snapshot, free: int) -> None:
    """Add workers to `target` in place: one worker per job and round, in this order, up to each job's maximum."""
    need = snapshot.need
    room = snapshot.jobs.maximum[order] - target[order]
    order, room = order[room > 0], room[room > 0]
    while len(order):
        step = need[order]
        whole = _whole_rounds(step, room, free)
        if whole:
            given = np.minimum(room, whole)
            target[order] += given
            free -= int((given * step).sum())
        else:
            fits = first_fit(step, free)
            target[order[fits]] += 1
            free -= int(step[fits].sum())
            given = fits.astype(np.int64)
        room = room - given
        keep = (room > 0) & (step <= free)
        order, room = order[keep], room[keep]


def _whole_rounds(step: Ints, room: Ints, free: int) -> int:
    """Return how many more workers every job below its maximum can get."""
    low, high = 0, int(room.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int((np.minimum(room, middle) * step).sum()) <= free:
            low = middle
        else:
            high = middle - 1
    return low
