"""The inner loops of some rules, job by job, for those who decide a hundred thousand times in a row.

Rules work on columns. To touch a column costs a microsecond however short it is, and in a simulation of many jobs that
is most of a round. Here is what three policies, the placement `stay` and the check compute, each as the loop that it
stands for. Where there is a C compiler, installing Sterna compiles this file as it stands, with the types in
`loops.pxd`. Rules use the result if it is there (`engine/kernels/native.py`), else columns: both give the same plans,
and tests compare them. Policies are covered for jobs of one size each and without priorities: the rest is rare, or
large enough for columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from sterna.model.cluster import MILLI, NOWHERE, Assignment
from sterna.model.plan import NO_JOB, Action, ActionKind, Mark

if TYPE_CHECKING:
    from sterna.model.cluster import Bytes, Ints
    from sterna.model.speedup import Floats

_NEVER = float("inf")
_NO_END = 1 << 60
"""More than any node has room for."""
_STOP, _SHRINK, _MIGRATE, _START, _GROW = (
    ActionKind.STOP,
    ActionKind.SHRINK,
    ActionKind.MIGRATE,
    ActionKind.START,
    ActionKind.GROW,
)
_NO_MARK = Mark.NONE

_action, _assignment = partial(tuple.__new__, Action), partial(tuple.__new__, Assignment)
"""Make one of all its fields; the constructor of a named tuple takes twice as long."""

_row_of = itemgetter(2)
"""Of an action."""


def fit_in_order(size: Ints, cost: Ints, workers: Ints, free: int, smallest: int, held: int, target: Ints) -> bool:
    """Give each its size if it fits, in the order of rows (changes `target`, which is all 0); whether anybody gets
    other than what it has. Those that run hold so much together: behind the last of them, once nothing is left, nobody
    needs to be asked."""
    changes = False
    for row in range(len(size)):
        if workers[row]:
            held -= cost[row]
        if cost[row] <= free:
            target[row] = size[row]
            free -= cost[row]
        if target[row] != workers[row]:
            changes = True
        if not held and free < smallest:
            break
    return changes


def fit_by_key(key: Floats, size: Ints, cost: Ints, workers: Ints, free: int, smallest: int, target: Ints) -> None:
    """Give each its size if it fits, asked by key (changes `target`, which is all 0)."""
    rows = np.arange(len(key))
    for place in range(_fitting(rows, len(key), key, cost, workers, free, smallest)):
        target[rows[place]] = size[rows[place]]


def take_turns(
    attained: Floats,
    executed: Floats,
    waiting_since: Floats,
    first_start: Floats,
    size: Ints,
    cost: Ints,
    workers: Ints,
    now: float,
    near: float,
    threshold: float,
    promote: float,
    free: int,
    smallest: int,
    unit: int,
    second: Bytes,
    promoted: Bytes,
    target: Ints,
) -> tuple[float, bool]:
    """Tiresias: who is in the second queue, who goes back from there to the first, and who is served (changes `second`,
    `promoted`, which is 0 for all, and `target`, which is what they have); until when that stands, and whether anybody
    goes back. A threshold that is as `near` is crossed; costs are in pieces of so many units."""
    until, returns = _NEVER, False
    for row in range(len(second)):
        second[row] = attained[row] > threshold - near
        if promote and second[row] and not workers[row]:
            due = executed[row] * promote + waiting_since[row]
            if due <= now + near:
                second[row] = 0
                promoted[row] = 1
                returns = True
            elif due < until:
                until = due
    is_wanted = _serve(second, first_start, size, cost, workers, free, smallest, target)
    soonest = _NEVER
    for row in range(len(second)):
        if target[row]:
            if is_wanted and not second[row]:
                left = threshold if promoted[row] else threshold - attained[row]
                left /= max(cost[row] * unit, 1)
                if left < soonest:
                    soonest = left
        elif promote and workers[row] and executed[row] > 0:
            due = now + promote * executed[row]
            if due < until:
                until = due
    return min(until, now + MILLI * soonest), returns


def _serve(
    second: Bytes, first_start: Floats, size: Ints, cost: Ints, workers: Ints, free: int, smallest: int, target: Ints
) -> bool:
    """Start who waits in the first queue, on what is free and on what the second queue holds; on what is left after
    that, who waits in the second (changes `target`, which is what they have). Whether anybody of the first queue still
    waits."""
    rows = np.empty(len(size), dtype=np.int64)
    waiting = need = held = 0
    for row in range(len(size)):
        if second[row]:
            if workers[row]:
                held += cost[row]
        elif not workers[row]:
            rows[waiting] = row
            waiting += 1
            need += cost[row]
    started = waiting
    if need > free + held:
        started = _fitting(rows, waiting, first_start, cost, workers, free + held, smallest)
        need = _sum_of(cost, rows, started)
    for place in range(started):
        target[rows[place]] = size[rows[place]]
    if need > free and (started or free + held >= smallest):
        count = _of_second(second, workers, cost, True, held, rows)
        stay = _fitting(rows, count, first_start, cost, workers, free + held - need, smallest)
        free += held - _sum_of(cost, rows, stay)
        for place in range(stay, count):
            target[rows[place]] = 0
    free -= need
    if free >= smallest:
        count = _of_second(second, workers, cost, False, free, rows)
        for place in range(_fitting(rows, count, first_start, cost, workers, free, smallest)):
            target[rows[place]] = size[rows[place]]
    return started < waiting


def _of_second(second: Bytes, workers: Ints, cost: Ints, runs: bool, most: int, rows: Ints) -> int:
    """Rows of the second queue that run, or wait, and cost at most so much (changes `rows`, which then begins with
    them); how many."""
    count = 0
    for row in range(len(second)):
        if second[row] and (workers[row] > 0) == runs and cost[row] <= most:
            rows[count] = row
            count += 1
    return count


def _sum_of(cost: Ints, rows: Ints, count: int) -> int:
    """What the first so many of these rows cost together."""
    total = 0
    for place in range(count):
        total += cost[rows[place]]
    return total


def differing(target: Ints, workers: Ints) -> list[int]:
    """Rows in which the two differ."""
    rows = []
    for row in range(len(target)):
        if target[row] != workers[row]:
            rows.append(row)
    return rows


def runs_for(free: Ints, count: int, need: int) -> list[tuple[int, int]]:
    """Pairs of node and workers for so many workers, or for as many as there is room for: the node with least room that
    holds them all; if none does, the one with most room, and so on with the rest (leaves `free` as it was)."""
    runs, before = [], []
    node, room = -1, 0
    while count:
        # As long as the emptiest does not hold what is left, the next is one as empty behind it, if there is any.
        node = _as_empty(free, node + 1, room) if node >= 0 and count * need > room else -1
        if node < 0:
            node = _seat_for(free, count * need)
        room = int(free[node])
        here = min(count, room // need)
        if here <= 0:
            break
        runs.append((node, here))
        before.append(room)
        free[node] = 0
        count -= here
    for place in range(len(runs)):
        free[runs[place][0]] = before[place]
    return runs


def runs_for_many(free: Ints, count: int, need: int, jobs: int) -> list[tuple[tuple[int, int], ...]]:
    """The same for up to so many equal jobs, one after the other, as long as there is room for all of one (changes
    `free`). All nodes are looked at only where neither the next of the emptiest nor the last that a rest was put on
    will do."""
    many: list[tuple[tuple[int, int], ...]] = []
    most, behind, rest, rest_node = _NO_END, 0, 0, 0
    while len(many) < jobs:
        runs, left = [], count
        while left:
            node = -1
            if left * need > most:
                node = _as_empty(free, behind, most)
            elif left == rest and free[rest_node] >= left * need:
                node = rest_node
            if node < 0:
                node = _seat_for(free, left * need)
                if free[node] >= left * need:
                    rest, rest_node = left, node
                else:
                    most = int(free[node])
            if left * need > most:
                behind = node + 1
            here = min(left, int(free[node]) // need)
            if here <= 0:
                return many
            runs.append((node, here))
            free[node] -= here * need
            left -= here
        many.append(tuple(runs))
    return many


def _seat_for(free: Ints, wanted: int) -> int:
    """The first of the nodes with least room that have so much; if none has, the first of those with most."""
    best, most, least_room, most_room = -1, 0, 0, free[0]
    for node in range(len(free)):
        room = free[node]
        if room == wanted:
            return node
        if room > wanted:
            if best < 0 or room < least_room:
                best, least_room = node, room
        elif room > most_room:
            most, most_room = node, room
    return most if best < 0 else best


def _as_empty(free: Ints, first: int, room: int) -> int:
    """The next node from `first` on with just so much room; if there is none, -1."""
    for node in range(first, len(free)):
        if free[node] == room:
            return node
    return -1


def start_and_stop(
    rows: list[int], target: Ints, keys: Ints, assignments: Mapping[int, Assignment], free: Ints, need: int
) -> list[Action] | None:
    """Actions for jobs that start from nothing or stop, on nodes that differ in nothing but their room: largest first,
    each where `runs_for` says (changes `free`). None if somebody does not fit."""
    stops, wishes, starts = [], [], []
    for row in rows:
        if target[row]:
            wishes.append((-int(target[row]), row))
            continue
        assignment = assignments[int(keys[row])]
        for node, count in assignment[0]:
            free[node] += count * need
        stops.append(_action((_STOP, int(keys[row]), row, assignment, NOWHERE, _NO_MARK, None, NO_JOB)))
    if len(wishes) > 1:
        wishes.sort()
    for size, row in wishes:
        runs = runs_for(free, -size, need)
        for node, here in runs:
            free[node] -= here * need
            size += here
        if size:
            return None
        assignment = _assignment((tuple(runs), (), ()))
        starts.append(_action((_START, int(keys[row]), row, NOWHERE, assignment, _NO_MARK, None, NO_JOB)))
    if len(starts) > 1:
        starts.sort(key=_row_of)
    return stops + starts


def are_fine(
    actions: Sequence[Action],
    keys: Ints,
    minimum: Ints,
    maximum: Ints,
    assignments: Mapping[int, Assignment],
    free: Ints,
    need: int,
) -> bool:
    """Whether a plan keeps to what every plan must, where nothing counts but whole devices, so many a worker. What is
    wrong, if anything, is for others to find out."""
    seen, latest = set(), _STOP
    taken: dict[int, int] = {}
    for kind, key, row, before, after, _, _, _ in actions:
        if row < 0 or row >= len(keys) or keys[row] != key or key in seen or kind < latest:
            return False
        seen.add(key)
        latest = kind
        assignment = assignments.get(key, NOWHERE)
        if assignment is not before and assignment != before:
            return False
        old = new = 0
        for node, count in before[0]:
            old += count
            taken[node] = taken.get(node, 0) - count
        for node, count in after[0]:
            if count <= 0:
                return False
            new += count
            taken[node] = taken.get(node, 0) + count
        if new and (new < minimum[row] or new > maximum[row]):
            return False
        if kind is not _kind_of(old, new):
            return False
    for node, count in taken.items():
        if node < 0 or node >= len(free) or (count > 0 and count * need > free[node]):
            return False
    return True


def _kind_of(old: int, new: int) -> ActionKind:
    if not new:
        return _STOP
    if not old:
        return _START
    if old == new:
        return _MIGRATE
    return _GROW if new > old else _SHRINK


def _fitting(rows: Ints, count: int, key: Floats, cost: Ints, workers: Ints, free: int, smallest: int) -> int:
    """Which of the first so many rows fit, asked in order (changes the order of `rows`: those that fit come first); how
    many.

    A quicksort that leaves a part as it is if all or nothing of it fits, and all that comes after the last that does.
    """
    if not count:
        return 0
    ends = np.empty(count + 1, dtype=np.int64)
    ends[0] = count
    parts, begin, found = 1, 0, 0
    while parts and free >= smallest:
        end, total, least = ends[parts - 1], 0, cost[rows[begin]]
        for place in range(begin, end):
            total += cost[rows[place]]
            least = min(least, cost[rows[place]])
        if total <= free:
            for place in range(begin, end):
                rows[found], rows[place] = rows[place], rows[found]
                found += 1
            free -= total
        elif least <= free:
            ends[parts] = _split(rows, begin, end, key, workers)
            parts += 1
            continue
        begin = end
        parts -= 1
    return found


def _split(rows: Ints, begin: int, end: int, key: Floats, workers: Ints) -> int:
    """Bring a part of at least two rows into two parts of which one precedes the other (changes `rows`); where the
    other begins."""
    middle, last, bound = (begin + end) // 2, end - 1, begin
    pivot = rows[middle]
    rows[middle] = rows[last]
    for place in range(begin, last):
        if _precedes(rows[place], pivot, key, workers):
            rows[bound], rows[place] = rows[place], rows[bound]
            bound += 1
    rows[last] = rows[bound]
    rows[bound] = pivot
    return max(bound, begin + 1)


def _precedes(one: int, other: int, key: Floats, workers: Ints) -> bool:
    """By key, those without a number last; then those that run, so that equal jobs do not swap; then by row."""
    mine, its = key[one], key[other]
    if mine != mine:
        mine = _NEVER
    if its != its:
        its = _NEVER
    if mine != its:
        return bool(mine < its)
    if (workers[one] == 0) != (workers[other] == 0):
        return bool(workers[other] == 0)
    return one < other
