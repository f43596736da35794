"""Shortest first: the walk that `srjf` and `elastic-srjf` share."""

from __future__ import annotations

import numpy as np

from sterna.engine.walk import walk_by
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot

KEYS = ("service", "time")


def shortest_first(snapshot: Snapshot, by: str) -> tuple[Ints, int]:
    """Rows that get their minimum, shortest first, and the units that are left."""
    jobs = snapshot.jobs
    minimum = jobs.minimum
    key = jobs.remaining
    if by == "time":
        key = key / snapshot.curves.speed(jobs.curve, minimum)
    size = snapshot.cost(minimum)
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
