"""Walks: give each job its due in order, and go on past those that do not fit.

The loop that every policy shares, without a loop over jobs: a cumulative sum, cut at the first refusal; what still
fits is kept, so there are at most as many steps as there are distinct sizes.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.native import Loops, machine_code
from sterna.model.cluster import Bools, Ints
from sterna.model.snapshot import Jobs, Snapshot
from sterna.model.speedup import Floats

_FEW = 64
"""Up to so many that may still fit are asked one by one."""


def walk(size: Ints, free: int, smallest: int = 1, *, skip: bool = True) -> Bools:
    """Which of these, in this order, fit into `free`; without `skip` nothing passes the first refusal."""
    count = len(size)
    taken = np.zeros(count, dtype=np.bool_)
    reached = min(count, _most(free, smallest, count))
    total = size[:reached].cumsum()
    cut = int(total.searchsorted(free, "right"))
    taken[:cut] = True
    if cut:
        free -= total.item(cut - 1)
    if cut == count or free < smallest or (cut < reached and not skip):
        return taken
    rest = (size[cut:] <= free).nonzero()[0]
    rest += cut
    if len(rest) <= _FEW:
        for place, each in zip(rest.tolist(), size.take(rest).tolist(), strict=True):
            if each <= free:
                taken[place] = True
                free -= each
        return taken
    while len(rest) and free >= smallest:
        total = size.take(rest).cumsum()
        cut = int(total.searchsorted(free, "right"))
        taken[rest[:cut]] = True
        free -= total.item(cut - 1)
        rest = rest[cut + 1 :]
        if len(rest):
            rest = rest[size.take(rest) <= free]
    return taken


def walk_by(key: Floats, size: Ints, workers: Ints, free: int, smallest: int = 1) -> tuple[Ints, int]:
    """Rows that fit into `free`, smallest key first (then those that run, then the row), in that order, and what is
    left.

    Only as many rows are sorted as could fit: the next best few, then the best of those that still fit, and so on.
    Those without a number come last.
    """
    unknown = np.isnan(key)
    if unknown.any():
        key = np.where(unknown, np.inf, key)
    most = _most(free, smallest, len(key))
    if len(key) <= 2 * most:
        ordered = _in_order(key, workers)
        sizes = size[ordered]
        fits = walk(sizes, free, smallest)
        return ordered[fits], free - int(sizes.dot(fits))
    rows = np.arange(len(key))
    accepted = []
    while len(rows) and free >= smallest:
        head = _lowest(key, rows, _most(free, smallest, len(rows)))
        ordered = head[_in_order(key[head], workers[head])]
        sizes = size[ordered]
        fits = walk(sizes, free, smallest)
        free -= int(sizes.dot(fits))
        accepted.append(ordered[fits])
        rows = rows[(key[rows] > key[ordered[-1]]) & (size[rows] <= free)]
    return (np.concatenate(accepted) if accepted else np.arange(0)), free


def _most(free: int, smallest: int, everybody: int) -> int:
    """How many need to be looked at before the room is used up, at least one more than can fit."""
    return free // smallest + 1 if smallest else everybody


def _lowest(key: Floats, rows: Ints, count: int) -> Ints:
    """Rows with the `count` lowest keys, and all that tie with the last of them."""
    if len(rows) <= 2 * count:
        return rows
    keys = key[rows]
    bound = float(np.partition(keys, count - 1)[count - 1])
    lowest: Ints = rows[keys <= bound]
    return lowest


def _in_order(key: Floats, workers: Ints) -> Ints:
    """By key; equal keys: those that run stay first, so that equal jobs do not swap."""
    return np.lexsort((workers == 0, key))


def by_priority(snapshot: Snapshot) -> Ints:
    """Rows that may run, higher priority first, then in submit order."""
    jobs = snapshot.jobs
    order = (-jobs.priority).argsort(kind="stable") if jobs.has_priorities else np.arange(len(jobs))
    return order if jobs.barred is None else order[~jobs.barred[order]]


def minimum_in_order(snapshot: Snapshot) -> Ints:
    """The minimum for each job that fits when all are asked anew in submit order, higher priority first; else 0."""
    jobs, units, smallest = snapshot.jobs, snapshot.units, snapshot.smallest_need
    if snapshot.all_fit:
        return snapshot.minimum_for_all
    if jobs.barred is not None or jobs.has_priorities:
        order = by_priority(snapshot)
        chosen = order[walk(snapshot.cost(jobs.minimum)[order], units, smallest)]
        target = np.zeros(len(jobs), dtype=np.int64)
        target[chosen] = jobs.minimum[chosen]
        return target
    code = machine_code()
    if code is not None:
        return _fitted(snapshot, code)
    if snapshot.is_uniform and smallest:
        most = units // smallest
        if most + 1 < len(jobs):
            joined = _joined(jobs, most, snapshot.free_units // smallest) if snapshot.is_rigid else None
            if joined is not None:
                return joined
            target = np.zeros(len(jobs), dtype=np.int64)
            if _used_up(jobs.minimum[: most + 1], most, target):  # then nobody further back needs to be looked at
                return target
    return walk(snapshot.cost(jobs.minimum), units, smallest) * jobs.minimum


def _fitted(snapshot: Snapshot, code: Loops) -> Ints:
    jobs = snapshot.jobs
    cost, unit = snapshot.scaled_minimum_cost
    target = np.zeros(len(cost), dtype=np.int64)
    free, smallest = snapshot.units // unit, snapshot.smallest_need // unit
    held = (
        snapshot.held_units // unit if snapshot.is_rigid else -1
    )  # what others than rigid ones hold is not their cost
    changes = code.fit_in_order(jobs.minimum, cost, jobs.workers, free, smallest, held, target)
    return target if changes or not snapshot.is_rigid else jobs.workers  # others go on with it and write to it


def _joined(jobs: Jobs, most: int, free: int) -> Ints | None:
    """The same for jobs of one size where nobody has to stop: those that run, and who joins them. None if that cannot
    be told from the first rows, as many as there are workers at `most` and one more."""
    size, workers = jobs.minimum[: most + 1], jobs.workers[: most + 1]
    ends = workers.cumsum()
    if ends.item(-1) + free != most:  # somebody runs further back
        return None
    ends += size
    joining = ((ends <= most) & (workers == 0)).nonzero()[0]
    target = jobs.workers.copy() if len(joining) else jobs.workers
    while len(joining):
        row = joining.item(0)
        target[row] = given = size.item(row)
        free -= given
        if free < 0:
            return None
        most -= given  # which is left for everybody behind
        joining = joining[1:]
        joining = joining[ends.take(joining) <= most]
    return None if free else target


def _used_up(size: Ints, free: int, target: Ints) -> bool:
    """Give each of these its size if it fits, in order (changes `target`); whether nothing is left then."""
    total = size.cumsum()
    cut = int(total.searchsorted(free, "right"))
    target[:cut] = size[:cut]
    if cut:
        free -= total.item(cut - 1)
    rest = (size[cut:] <= free).nonzero()[0]
    rest += cut
    while free and len(rest):
        row = rest.item(0)
        target[row] = given = size.item(row)
        free -= given
        rest = rest[1:]
        rest = rest[size.take(rest) <= free]
    return not free


def deal(target: Ints, order: Ints, snapshot: Snapshot, free: int) -> None:
    """Hand out what is left one worker a job and round, in order, up to each maximum (changes `target`)."""
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
            fits = walk(step, free)
            target[order[fits]] += 1
            free -= int(step[fits].sum())
            given = fits.astype(np.int64)
        room = room - given
        keep = (room > 0) & (step <= free)
        order, room = order[keep], room[keep]


def _whole_rounds(step: Ints, room: Ints, free: int) -> int:
    """How often everybody still below its maximum can be given one more."""
    low, high = 0, int(room.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int((np.minimum(room, middle) * step).sum()) <= free:
            low = middle
        else:
            high = middle - 1
    return low
