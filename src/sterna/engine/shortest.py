"""Shortest first: the walk that `srjf` and `elastic-srjf` share, and its short form for jobs of one size."""

from __future__ import annotations

import numpy as np

from sterna.engine.exchange import best_that_fit, can_enter, refused, total
from sterna.engine.walk import walk_by
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

KEYS = ("service", "time")


def shortest_first(snapshot: Snapshot, by: str) -> tuple[Ints, int]:
    """Rows that get their minimum, shortest first, and the units that are left. Equal jobs do not swap: those that run
    go first, and a job that has to start again counts as longer by what that costs."""
    jobs = snapshot.jobs
    key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
    size = snapshot.cost(jobs.minimum)
    units = snapshot.units
    if jobs.barred is not None:
        size = np.where(jobs.barred, units + 1, size)
    if not jobs.has_priorities:
        return walk_by(key, size, jobs.workers, units, snapshot.smallest_need)
    chosen = []
    for level in np.unique(jobs.priority):
        mine = np.where(jobs.priority == level, size, units + 1)
        rows, units = walk_by(key, mine, jobs.workers, units, snapshot.smallest_need)
        chosen.append(rows)
    return np.concatenate(chosen), units


def exchanged(snapshot: Snapshot, by: str) -> Ints:
    """Workers for each row when every job has one size: the same, without looking at those that run undisturbed."""
    jobs, smallest = snapshot.jobs, snapshot.smallest_need
    key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
    target, waits = jobs.workers.copy(), jobs.workers == 0
    able = waits if jobs.barred is None else waits & ~jobs.barred
    left = snapshot.free_units
    running = (~waits).nonzero()[0]
    if len(running):
        keys = key.take(running)
        ahead = ((key < keys.item(keys.argmax())) & able).nonzero()[0]
        if len(ahead):
            left = _make_way(snapshot, key, running, keys, ahead, target)
    if left >= smallest:
        cost = snapshot.least_cost
        rows = ((cost <= left) & able & (target == 0)).nonzero()[0]
        if len(rows):
            chosen, _ = best_that_fit(rows, key.take(rows), cost.take(rows), left, smallest)
            target[chosen] = jobs.minimum[chosen]
    return target


def _make_way(snapshot: Snapshot, key: Floats, running: Ints, keys: Floats, ahead: Ints, target: Ints) -> int:
    """Start those that are shorter than the longest that runs, in its place if need be (changes `target`); what is
    left. Who does not fit here does not fit into what is left either."""
    jobs, cost, free = snapshot.jobs, snapshot.least_cost, snapshot.free_units
    sizes, held = cost.take(ahead), cost.take(running)
    need = total(sizes)
    if need <= free:
        target[ahead] = jobs.minimum[ahead]
        return free - need
    wanted = key.take(ahead)
    if not can_enter(wanted, sizes, keys, held, free):
        return free
    waits = np.arange(len(keys) + len(wanted)) >= len(keys)
    losers, left = refused(
        np.concatenate([keys, wanted]), np.concatenate([held, sizes]), waits, need - free, snapshot.smallest_need
    )
    target[ahead] = jobs.minimum[ahead]
    target[np.concatenate([running, ahead])[losers]] = 0
    return left


def in_turn(snapshot: Snapshot, rows: Ints, by: str) -> Ints:
    """These rows by priority, length and submission, whoever runs now."""
    return rows[np.lexsort((rows, _length(snapshot, by)[rows], snapshot.jobs.priority[rows]))]


def _length(snapshot: Snapshot, by: str, credit_seconds: float = 0.0) -> Floats:
    """Work left, or time left at the minimum; less, for those that run, what they do in `credit_seconds`."""
    jobs = snapshot.jobs
    key = jobs.remaining
    if credit_seconds:
        key = key - credit_seconds * snapshot.curves.speed(jobs.curve, jobs.workers)
    return key if by == "service" else key / snapshot.curves.speed(jobs.curve, jobs.minimum)
