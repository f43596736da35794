"""Shortest remaining job first: the order and the first fit that `srjf` and `elastic-srjf` share."""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit_by_key
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

KEYS = ("service", "time")


def fit_shortest_first(snapshot: Snapshot, by: str) -> tuple[Ints, int]:
    """Return the rows that get their minimum when the shortest job is served first, and the units that are left.

    Equal jobs do not swap: a running job precedes a waiting one, and a job that would have to restart counts as longer
    by the cost of a restart.
    """
    jobs, cost, units, smallest = snapshot.jobs, snapshot.minimum_cost, snapshot.units, snapshot.smallest_need
    key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
    rows = np.arange(len(key)) if jobs.barred is None else (~jobs.barred).nonzero()[0]
    if not jobs.has_priorities:
        return first_fit_by_key(rows, key, cost, jobs.workers, units, smallest)
    chosen = []
    for level in np.unique(jobs.priority)[::-1]:
        of_level = rows[jobs.priority[rows] == level]
        fitting, units = first_fit_by_key(of_level, key, cost, jobs.workers, units, smallest)
        chosen.append(fitting)
    return np.concatenate(chosen), units


def order_by_length(snapshot: Snapshot, by: str) -> Ints:
    """Return all rows in the order of serving: higher priority first, unknown length last."""
    jobs = snapshot.jobs
    key = _length(snapshot, by, credit_seconds=snapshot.restart_seconds)
    return np.lexsort((jobs.workers == 0, key, -jobs.priority))


def sort_by_length(snapshot: Snapshot, rows: Ints, by: str) -> Ints:
    """Sort these rows by priority, length and submission; running and waiting jobs alike."""
    return rows[np.lexsort((rows, _length(snapshot, by)[rows], -snapshot.jobs.priority[rows]))]


def _length(snapshot: Snapshot, by: str, credit_seconds: float = 0.0) -> Floats:
    """Return remaining work, or remaining time at the minimum; running jobs get `credit_seconds` of work off."""
    jobs = snapshot.jobs
    key = jobs.remaining
    if credit_seconds:
        key = key - credit_seconds * snapshot.curves.speed(jobs.curve, jobs.workers)
    return key if by == "service" else key / snapshot.curves.speed(jobs.curve, jobs.minimum)
