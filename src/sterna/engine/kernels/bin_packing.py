"""First fit of jobs into a number of units, and best fit of workers onto nodes.

Every function is a plain loop over int64 and float64 columns. Cython compiles this file as it is, with the C types in
`bin_packing.pxd`; an installation without a C compiler runs the same source as Python, which is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sterna.model.cluster import Bools, Ints
    from sterna.model.speedup import Floats

_IS_COMPILED = not __file__.endswith(".py")
_UNKNOWN = float("inf")
"""Sort key of a job whose key is NaN."""
_LARGEST = 1 << 62
"""More units than any node has."""


def first_fit(cost: Ints, free: int, smallest: int = 1, skip: bool = True) -> Bools:
    """Return which entries of `cost` fit into `free` units when they are taken in order.

    An entry that does not fit is passed over, or ends the loop if `skip` is false. `smallest` is a lower bound of all
    costs: below it nothing else can fit.
    """
    costs = _readable(cost)
    fits = np.zeros(len(cost), dtype=np.uint8)
    mask = fits
    for at in range(len(costs)):
        if costs[at] <= free:
            mask[at] = 1
            free -= costs[at]
        elif not skip or free < smallest:
            break
    return fits.view(np.bool_)


def first_fit_by_key(
    rows: Ints, key: Floats, cost: Ints, workers: Ints, free: int, smallest: int = 1
) -> tuple[Ints, int]:
    """Return which of `rows` fit into `free` units when they are taken by rising key, and the units that are left.

    `key`, `cost` and `workers` are columns over all rows. NaN is the last key. Ties go to the job that has workers,
    then to the lower row. The rows returned are in no particular order.

    This is a quicksort that does not sort a partition of which every row or no row fits.
    """
    if not len(rows):
        return rows, free
    candidates, keys, costs, running = _writable(rows), _readable(key), _readable(cost), _readable(workers)
    ends = np.empty(len(rows) + 1, dtype=np.int64)
    ends[0] = len(rows)
    partitions, begin, found = 1, 0, 0
    while partitions and free >= smallest:
        end, total, least = ends[partitions - 1], 0, costs[candidates[begin]]
        for at in range(begin, end):
            total += costs[candidates[at]]
            least = min(least, costs[candidates[at]])
        if total <= free:
            for at in range(begin, end):
                candidates[found], candidates[at] = candidates[at], candidates[found]
                found += 1
            free -= total
        elif least <= free:
            ends[partitions] = _split(candidates, begin, end, keys, running)
            partitions += 1
            continue
        begin = end
        partitions -= 1
    chosen = np.empty(found, dtype=np.int64)
    result = chosen
    for at in range(found):
        result[at] = candidates[at]
    return chosen, free


def _split(rows: Any, begin: int, end: int, key: Any, workers: Any) -> int:
    """Partition `rows[begin:end]`, which has at least two entries, around a pivot; return where the second part
    begins."""
    middle, last, bound = (begin + end) // 2, end - 1, begin
    pivot = rows[middle]
    rows[middle] = rows[last]
    for at in range(begin, last):
        if _precedes(rows[at], pivot, key, workers):
            rows[bound], rows[at] = rows[at], rows[bound]
            bound += 1
    rows[last] = rows[bound]
    rows[bound] = pivot
    return max(bound, begin + 1)


def _precedes(row: int, other: int, key: Any, workers: Any) -> bool:
    mine, its = key[row], key[other]
    if mine != mine:
        mine = _UNKNOWN
    if its != its:
        its = _UNKNOWN
    if mine != its:
        return bool(mine < its)
    if (workers[row] == 0) != (workers[other] == 0):
        return bool(workers[other] == 0)
    return row < other


def best_fit(free: Ints, need: int, count: int, jobs: int = 1) -> list[tuple[tuple[int, int], ...]]:
    """Return (node, workers) pairs for up to `jobs` jobs of `count` workers that take `need` units of a node each.

    Each job gets the node with least free units that holds all its workers; if there is none, the node with most free
    units, and so on with the workers that are left. Ties go to the lower node. The last job returned has fewer than
    `count` workers if no node has room for more; otherwise there are `jobs` of them.
    """
    units = _writable(free)
    assignments: list[tuple[tuple[int, int], ...]] = []
    # While the workers that are left need more than any node has, the next node is the next one that is as empty
    # (`most` units, from `behind` on). A remainder that was placed before goes to the same node as long as it fits.
    most, behind, rest, rest_node = -1, 0, 0, 0
    while len(assignments) < jobs:
        pairs, left = [], count
        while left:
            node = -1
            if 0 <= most < left * need:
                node = _next_with(units, most, behind)
            elif left == rest and units[rest_node] >= left * need:
                node = rest_node
            if node < 0:
                node = _tightest(units, left * need)
                if node < 0:
                    break
                if units[node] >= left * need:
                    rest, rest_node = left, node
                else:
                    most = units[node]
            if 0 <= most < left * need:
                behind = node + 1
            here = min(left, units[node] // need)
            if here <= 0:
                break
            pairs.append((node, here))
            units[node] -= here * need
            left -= here
        assignments.append(tuple(pairs))
        if left:
            break
    return assignments


def _tightest(free: Any, wanted: int) -> int:
    """Return the first node with least free units that has `wanted`, else the first with most; -1 without nodes."""
    best, most, least_free, most_free = -1, -1, _LARGEST, -_LARGEST
    for node in range(len(free)):
        units = free[node]
        if units < wanted:
            if units > most_free:
                most, most_free = node, units
        elif units < least_free:
            best, least_free = node, units
            if units == wanted:
                break
    return most if best < 0 else best


def _next_with(free: Any, units: int, first: int) -> int:
    """Return the next node from `first` on with exactly these free units, or -1."""
    for node in range(first, len(free)):
        if free[node] == units:
            return node
    return -1


def _readable(column: Any) -> Any:
    """Return the column as compiled code or Python reads it fastest: as it is, or as a list."""
    return column if _IS_COMPILED else column.tolist()


def _writable(column: Any) -> Any:
    return column.copy() if _IS_COMPILED else column.tolist()
