"""Shortest first: the walk that `srjf` and `elastic-srjf` share."""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.native import machine_code
from sterna.engine.kernels.walk import walk_by
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

KEYS = ("service", "time")


def shortest_served(snapshot: Snapshot, by: str) -> Ints:
    """The minimum for each job that fits, asked shortest first; else 0."""
    jobs = snapshot.jobs
    target = np.zeros(len(jobs), dtype=np.int64)
    code = machine_code()
    if code is None or jobs.barred is not None or jobs.has_priorities:
        chosen, _ = shortest_first(snapshot, by)
        target[chosen] = jobs.minimum[chosen]
    else:
        key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
        cost, unit = snapshot.scaled_minimum_cost
        free, smallest = snapshot.units // unit, snapshot.smallest_need // unit
        code.fit_by_key(key, jobs.minimum, cost, jobs.workers, free, smallest, target)
    return target


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
    for level in np.unique(jobs.priority)[::-1]:
        mine = np.where(jobs.priority == level, size, units + 1)
        rows, units = walk_by(key, mine, jobs.workers, units, snapshot.smallest_need)
        chosen.append(rows)
    return np.concatenate(chosen), units


def by_length(snapshot: Snapshot, by: str) -> Ints:
    """All rows as they are asked, higher priority first; those of unknown length last."""
    jobs = snapshot.jobs
    key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
    return np.lexsort((jobs.workers == 0, key, -jobs.priority))


def in_turn(snapshot: Snapshot, rows: Ints, by: str) -> Ints:
    """These rows by priority, length and submission, whoever runs now."""
    return rows[np.lexsort((rows, _length(snapshot, by)[rows], -snapshot.jobs.priority[rows]))]


def _length(snapshot: Snapshot, by: str, credit_seconds: float = 0.0) -> Floats:
    """Work left, or time left at the minimum; less, for those that run, what they do in `credit_seconds`."""
    jobs = snapshot.jobs
    key = jobs.remaining
    if credit_seconds:
        key = key - credit_seconds * snapshot.curves.speed(jobs.curve, jobs.workers)
    return key if by == "service" else key / snapshot.curves.speed(jobs.curve, jobs.minimum)
