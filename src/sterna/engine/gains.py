"""Spending by gain: the next worker goes where it adds most speed-up.

Curves are concave, so a job's gains fall with every worker, and the best sequence is simply all gains of all jobs in
falling order. No loop over devices.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.walk import walk
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats


def spend_by_gain(target: Ints, rows: Ints, snapshot: Snapshot, free: int) -> None:
    """Hand out `free` units to these jobs above what they have (changes `target`). Equal gains: the earlier in
    `rows`."""
    room = snapshot.jobs.maximum[rows] - target[rows]
    need = snapshot.need[rows]
    reach = np.minimum(room, free // np.maximum(need, 1))
    if free <= 0 or not reach.any():
        return
    rank, gain = steps_above(snapshot, rows, target[rows], reach)
    useful = gain > 0
    rank, gain = rank[useful], gain[useful]
    worth = gain if snapshot.is_uniform else gain / np.maximum(need[rank], 1)
    order = np.argsort(-worth, kind="stable")
    rank = rank[order]
    fits = walk(need[rank], free, snapshot.smallest_need)
    np.add.at(target, rows[rank[fits]], 1)


def steps_above(snapshot: Snapshot, rows: Ints, held: Ints, reach: Ints) -> tuple[Ints, Floats]:
    """For each job, each of its next `reach` workers: which job (by place in `rows`) and what that worker would add."""
    rank = np.repeat(np.arange(len(rows)), reach)
    count = np.repeat(held - reach.cumsum() + reach, reach)
    count += np.arange(len(rank))
    return rank, snapshot.curves.gain(snapshot.jobs.curve[rows][rank], count)
