"""Spending by gain: the next worker goes where it adds most speed-up.

Curves are concave, so a job's gains fall with every worker, and the best sequence is simply all gains of all jobs in
falling order, as long as every worker needs equally many devices. Where they do not, gains count per device, which is
good but not always the best: to know the best would be to solve a knapsack. No loop over devices.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats


def spend_by_gain(target: Ints, rows: Ints, snapshot: Snapshot, free: int) -> None:
    """Hand out `free` units to these jobs above what they have (changes `target`). Equal gains: the earlier in
    `rows`."""
    room = snapshot.jobs.maximum[rows] - target[rows]
    need = snapshot.need[rows]
    reach = affordable_growth(room, need, free)
    if free < 0 or not reach.any():
        return
    rank, _, gain = steps_above(snapshot, rows, target[rows], reach)
    useful = gain > 0
    rank, gain = rank[useful], gain[useful]
    if snapshot.is_uniform:
        taken = rank[_largest(gain, free // need.item(0))] if need.item(0) else rank
    else:
        order = np.argsort(-gain / np.maximum(need[rank], 1), kind="stable")
        rank = rank[order]
        taken = rank[first_fit(need[rank], free, snapshot.smallest_need)]
    target[rows] += np.bincount(taken, minlength=len(rows))


def affordable_growth(room: Ints, need: Ints, free: int) -> Ints:
    """Workers that each job could add if it got all `free` units; one that needs no device is bounded by its maximum
    alone."""
    return np.where(need > 0, np.minimum(room, free // np.maximum(need, 1)), room)


def _largest(values: Floats, count: int) -> Ints:
    """Places of so many that are largest, of equal ones the first; without sorting all of them."""
    if count >= len(values):
        return np.arange(len(values))
    bound = np.partition(values, len(values) - count)[len(values) - count] if count else np.inf
    above = (values > bound).nonzero()[0]
    tied = (values == bound).nonzero()[0]
    return np.concatenate([above, tied[: count - len(above)]])


def steps_above(snapshot: Snapshot, rows: Ints, held: Ints, reach: Ints) -> tuple[Ints, Ints, Floats]:
    """For each job, each of its next `reach` workers, up to the last that adds anything: which job (by place in
    `rows`), how many it has before, and what that worker would add."""
    curve = snapshot.jobs.curve[rows]
    reach = np.clip(snapshot.curves.useful[curve] - held, 0, reach)
    rank = np.repeat(np.arange(len(rows)), reach)
    count = np.repeat(held - reach.cumsum() + reach, reach)
    count += np.arange(len(rank))
    return rank, count, snapshot.curves.gain(curve[rank], count)
