"""Fill a number of units with the workers that are worth most per unit.

An item is the whole minimum of a job or one worker more. Items are taken by priority and falling worth per unit; one
that does not fit is passed. A job that was passed because it is wide is then forced in before all others, and kept
there if the total worth rises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats

_MAX_FORCED = 16
"""Upper bound on the jobs that are forced in one at a time; they are tried by falling worth per unit."""


@dataclass(frozen=True)
class Items:
    """Workers to choose from, best first. The minimum of a job comes before its further workers."""

    row: Ints
    workers: Ints
    """Workers that the item adds: the minimum, or 1."""
    units: Ints
    worth: Floats
    """Worth per unit."""
    is_entry: Bools
    level: Ints
    """No item displaces one of a higher level."""


def sort_items(items: Items) -> Items:
    """Return the items by falling level and worth per unit; ties keep their order."""
    order = np.lexsort((-items.worth, -items.level))
    return Items(
        items.row[order],
        items.workers[order],
        items.units[order],
        items.worth[order],
        items.is_entry[order],
        items.level[order],
    )


def fill_by_worth(items: Items, jobs: int, units: int, smallest: int) -> Ints:
    """Return the workers of each of `jobs` rows. `items` are sorted; `smallest` is a lower bound of their units."""
    taken, left = _first_fit(items, items.units, jobs, units, smallest)
    worth = items.worth * items.units
    forced: list[int] = []
    for place in _candidates(items, taken, left)[:_MAX_FORCED].tolist():
        trial = [*forced, place]
        cost = items.units.copy()
        cost[trial] = 0
        room = units - int(items.units[trial].sum())
        if room < 0:
            continue
        other, _ = _first_fit(items, cost, jobs, room, smallest)
        other[trial] = True
        displaced = taken & ~other
        if worth[other].sum() > worth[taken].sum() and not (items.level[displaced] > items.level[place]).any():
            taken, forced = other, trial
    chosen = items.row[taken]
    return np.bincount(chosen, weights=items.workers[taken], minlength=jobs).astype(np.int64)


def _first_fit(items: Items, cost: Ints, jobs: int, units: int, smallest: int) -> tuple[Bools, int]:
    """Return which items fit when they are taken in order, and the units that are left."""
    total = cost.cumsum()
    count = int(total.searchsorted(units, "right"))
    taken = np.zeros(len(cost), dtype=np.bool_)
    taken[:count] = True
    left = units - (total.item(count - 1) if count else 0)
    if count == len(cost) or left < smallest:
        return taken, left
    has_entered = np.zeros(jobs, dtype=np.bool_)
    has_entered[items.row[:count]] = True
    may_enter = has_entered.copy()
    is_small = cost[count:] <= left
    may_enter[items.row[count:][is_small & items.is_entry[count:]]] = True
    places = (is_small & may_enter[items.row[count:]]).nonzero()[0] + count
    columns = (places, items.row[places], cost[places], items.is_entry[places])
    entered = set(items.row[:count].tolist())
    for place, row, need, is_entry in zip(*(column.tolist() for column in columns), strict=True):
        if need <= left and (is_entry or row in entered):
            taken[place] = True
            left -= need
            if is_entry:
                entered.add(row)
            if left < smallest:
                break
    return taken, left


def _candidates(items: Items, taken: Bools, left: int) -> Ints:
    """Return the minima that were passed and are worth more than the least worth that would have to go for them."""
    passed = (items.is_entry & ~taken).nonzero()[0]
    if not len(passed):
        return passed
    worth, units = items.worth[taken][::-1], items.units[taken][::-1]
    order = np.argsort(worth, kind="stable")
    freed = np.concatenate([[0], units[order].cumsum()])
    lost = np.concatenate([[0.0], (worth * units)[order].cumsum()])
    needed = np.interp(items.units[passed] - left, freed, lost)
    candidates: Ints = passed[items.worth[passed] * items.units[passed] > needed]
    return candidates
