"""`afs-l`: apathetic future share with known lengths. Gives devices one at a time, by a comparison of two jobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.afs_contest import Contest
from sterna.rules import Ints, Snapshot, Target, policy


@policy("afs-l", "AFS-L")
@dataclass(frozen=True)
class AfsL:
    """Each device to the winner between pairs: the shorter job, unless the longer one gains more than the shorter
    loses."""

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.jobs.minimum, order=partial(_entry_order, snapshot))
        jobs = snapshot.jobs
        target = np.zeros(len(jobs), dtype=np.int64)
        rows = np.arange(len(jobs)) if jobs.barred is None else np.flatnonzero(~jobs.barred)
        if len(rows):
            target[rows] = Contest(snapshot, rows).allocate(snapshot.units)
        return Target(target, order=partial(_entry_order, snapshot))


def _entry_order(snapshot: Snapshot) -> Ints:
    """Return rows in the order in which equal curves win their first workers: by priority, then shortest first."""
    return np.lexsort((snapshot.jobs.remaining, -snapshot.jobs.priority))
