"""Marginal gain: give the next worker to the job whose speed-up rises most.

Curves are concave, so the gains of a job fall with every worker. If every worker needs equally many devices, taking all
gains of all jobs in falling order is optimal. Otherwise gains count per device, which is a heuristic: the optimum would
be a knapsack problem. There is no loop over devices.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats


def spend_by_gain(target: Ints, rows: Ints, snapshot: Snapshot, free: int) -> None:
    """Distribute `free` units to these jobs by adding to `target` in place. Ties go to the job that is earlier in
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
    """Return the indices of the `count` largest values, of equal ones the first, without a full sort."""
    if count >= len(values):
        return np.arange(len(values))
    bound = np.partition(values, len(values) - count)[len(values) - count] if count else np.inf
    above = (values > bound).nonzero()[0]
    tied = (values == bound).nonzero()[0]
    return np.concatenate([above, tied[: count - len(above)]])


def steps_above(snapshot: Snapshot, rows: Ints, held: Ints, reach: Ints) -> tuple[Ints, Ints, Floats]:
    """Return one entry for each of the next `reach` workers of each job, up to the last that adds speed: the index of
    the job in `rows`, its workers before, and the speed-up that the worker adds."""
    curve = snapshot.jobs.curve[rows]
    reach = np.clip(snapshot.curves.useful[curve] - held, 0, reach)
    rank = np.repeat(np.arange(len(rows)), reach)
    count = np.repeat(held - reach.cumsum() + reach, reach)
    count += np.arange(len(rank))
    return rank, count, snapshot.curves.gain(curve[rank], count)
