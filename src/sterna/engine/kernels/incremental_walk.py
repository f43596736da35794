"""Exchanges: the outcome of a walk over all jobs, worked out from who runs now.

In most rounds one or two jobs change places and hundreds stay. Whoever goes first in an order still goes first, so only
the last of those that run can lose their place, and only the best of those that wait can win one. Jobs have one size
each here; for those that may grow there is the walk itself.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.kernels.walk import walk, walk_by
from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

_FEW = 12
"""Up to so many jobs are looked at or picked one by one."""


def total(sizes: Ints) -> int:
    """Their sum; for the few that mostly are asked for, Python adds faster."""
    return sum(sizes.tolist()) if len(sizes) <= _FEW else int(sizes.sum())


def refused(keys: Floats, sizes: Ints, over: int, smallest: int) -> tuple[list[int], int]:
    """Places of those who do not fit when all are asked in the order of their keys (then of their places) and together
    need `over` more than there is; and what is left then.

    Only the end of that order needs to be looked at: those that together hold as much as is missing.
    """
    tail, held = _last_that_hold(keys, sizes, over)
    if held < over or len(tail) > _FEW:
        return _refused_of_many(keys, sizes, over, smallest)
    room, losers = held - over, []
    for _, place in sorted(tail):
        size = sizes.item(place)
        if size <= room:
            room -= size
        else:
            losers.append(place)
    return losers, room


def _last_that_hold(keys: Floats, sizes: Ints, over: int) -> tuple[list[tuple[float, int]], int]:
    """The last in order, with all that tie with the first of them, as (key, place), and what they hold together; given
    up after a few. Leaves `keys` as they were."""
    tail: list[tuple[float, int]] = []
    held = 0
    while held < over and len(tail) < _FEW:
        place = int(keys.argmax())
        bound = keys.item(place)
        tail.append((bound, place))
        held += sizes.item(place)
        keys[place] = -np.inf
    for place in (keys == bound).nonzero()[0].tolist():
        tail.append((bound, place))
        held += sizes.item(place)
    for key, place in tail:
        keys[place] = key
    return tail, held


def _refused_of_many(keys: Floats, sizes: Ints, over: int, smallest: int) -> tuple[list[int], int]:
    count = len(keys)
    least = -(-over // smallest) if smallest else count
    if 2 * least < count:
        bound = keys.item(keys.argpartition(count - least).item(count - least))
        tail = (keys >= bound).nonzero()[0]
    else:
        tail = np.arange(count)
    tail = tail.take(keys.take(tail).argsort(kind="stable"))
    mine = sizes.take(tail)
    room = int(mine.sum()) - over
    fits = walk(mine, room, smallest)
    return tail[~fits].tolist(), room - int(mine.dot(fits))


def best_that_fit(rows: Ints, keys: Floats, sizes: Ints, free: int, smallest: int) -> tuple[list[int], int]:
    """Of these rows, which all fit singly, those that fit together when asked in the order of their keys, and what is
    left then."""
    if free >= _FEW * smallest and len(rows) > 1:
        places, left = walk_by(keys, sizes, sizes, free, smallest)
        return rows.take(places).tolist(), left
    chosen = []
    while True:
        best = keys.argmin()
        chosen.append(rows.item(best))
        free -= sizes.item(best)
        if free < smallest:
            return chosen, free
        still = sizes <= free
        still[best] = False
        if not np.count_nonzero(still):
            return chosen, free
        rows, keys, sizes = rows[still], keys[still], sizes[still]
