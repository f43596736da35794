"""The inner loops of some rules, job by job, for those who decide a hundred thousand times in a row.

Rules work on columns. To touch a column costs a microsecond however short it is, and in a simulation of many jobs that
is most of a round. Here is what three policies and every placement compute, each as the loop that it stands for. With
`numba` (`pip install sterna[fast]`) `compile_loops` turns them into machine code, and rules use that from then on; else
they go on with columns. Both give the same plans, and tests compare them. Only jobs of one size each and without
priorities are covered: the rest is rare, or large enough for columns.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sterna.model.cluster import MILLI, Bools, Ints
from sterna.model.speedup import Floats


def fit_in_order(size: Ints, cost: Ints, workers: Ints, free: int, target: Ints) -> bool:
    """Give each its size if it fits, in the order of rows (changes `target`, which is all 0); whether anybody gets
    other than what it has."""
    changes = False
    for row in range(len(size)):
        if cost[row] <= free:
            target[row] = size[row]
            free -= cost[row]
        changes |= target[row] != workers[row]
    return bool(changes)


def fit_by_key(key: Floats, size: Ints, cost: Ints, workers: Ints, free: int, smallest: int, target: Ints) -> None:
    """Give each its size if it fits, asked by key (changes `target`, which is all 0)."""
    rows = np.arange(len(key))
    for place in range(_fitting(rows, key, cost, workers, free, smallest)[0]):
        target[rows[place]] = size[rows[place]]


def go_back(
    attained: Floats,
    executed: Floats,
    waiting_since: Floats,
    workers: Ints,
    now: float,
    threshold: float,
    promote: float,
    second: Bools,
    promoted: Bools,
) -> tuple[float, bool]:
    """Who is in the second queue, and who goes back from there to the first (changes `second`, and `promoted`, which
    is false for all); when the next one will, and whether anybody does."""
    until, returns = np.inf, False
    for row in range(len(second)):
        second[row] = attained[row] > threshold
        if promote and second[row] and not workers[row]:
            due = executed[row] * promote + waiting_since[row]
            if due <= now:
                second[row] = False
                promoted[row] = True
                returns = True
            else:
                until = min(until, due)
    return until, returns


def serve_queues(
    second: Bools, first_start: Floats, size: Ints, cost: Ints, workers: Ints, free: int, smallest: int, target: Ints
) -> tuple[Ints, bool]:
    """Start who waits in the first queue, on what is free and on what the second queue holds; on what is left after
    that, who waits in the second (changes `target`, which is what they have). Who is stopped, and whether anybody of
    the first queue still waits."""
    first = ((workers == 0) & ~second).nonzero()[0]
    started, need, stopped = len(first), cost[first].sum(), first[:0]
    if need > free:
        low = ((workers > 0) & second).nonzero()[0]
        held = cost[low].sum()
        if need > free + held:
            started, need = _fitting(first, first_start, cost, workers, free + held, smallest)
        if need > free and (started or free + held >= smallest):
            stay, kept = _fitting(low, first_start, cost, workers, free + held - need, smallest)
            free += held - kept
            stopped = low[stay:]
    target[stopped] = 0
    target[first[:started]] = size[first[:started]]
    free -= need
    if free >= smallest:
        later = ((cost <= free) & (workers == 0) & second).nonzero()[0]
        later = later[: _fitting(later, first_start, cost, workers, free, smallest)[0]]
        target[later] = size[later]
    return stopped, started < len(first)


def next_demotion(
    threshold: float, attained: Floats, second: Bools, promoted: Bools, cost: Ints, target: Ints
) -> float:
    """In how long a job of the first queue next passes the threshold, if anybody of that queue waits for devices."""
    soonest, is_wanted = np.inf, False
    for row in range(len(second)):
        if second[row]:
            continue
        if target[row]:
            used = 0.0 if promoted[row] else attained[row]
            soonest = min(soonest, (threshold - used) / max(cost[row], 1))
        else:
            is_wanted = True
    return MILLI * soonest if is_wanted else np.inf


def along(start: Floats, slope: Floats, now: float) -> Floats:
    """Where lines stand now."""
    return start + slope * now


def differing(target: Ints, workers: Ints, rows: Ints) -> int:
    """Rows in which the two differ (changes `rows`, which then begins with them); how many."""
    found = 0
    for row in range(len(target)):
        if target[row] != workers[row]:
            rows[found] = row
            found += 1
    return found


def tightest(free: Ints, wanted: int) -> int:
    """The first of the nodes with least room that have so much; if none has, -1."""
    best = -1
    for node in range(len(free)):
        if free[node] >= wanted and (best < 0 or free[node] < free[best]):
            best = node
    return best


def emptiest_first(free: Ints, count: int, need: int) -> Ints:
    """Pairs of node and workers for so many workers, or for as many as there is room for: the nodes with most room, as
    long as none holds what is left (changes `free`)."""
    runs, found = np.empty((count, 2), dtype=np.int64), 0
    while count:
        node = tightest(free, count * need)
        if node < 0:
            node = int(free.argmax())
        here = min(count, free[node] // need)
        if not here:
            break
        runs[found] = node, here
        found += 1
        free[node] = 0
        count -= here
    return runs[:found]


def _fitting(rows: Ints, key: Floats, cost: Ints, workers: Ints, free: int, smallest: int) -> tuple[int, int]:
    """Which of these rows fit, asked in order (changes the order of `rows`: those that fit come first); how many, and
    what they need.

    A quicksort that leaves a part as it is if all or nothing of it fits, and all that comes after the last that does.
    """
    ends = np.empty(len(rows) + 1, dtype=np.int64)
    ends[0] = len(rows)
    parts, begin, found, need = 1, 0, 0, 0
    while parts and free >= smallest:
        end, total, least = ends[parts - 1], 0, cost[rows[begin]] if len(rows) else 0
        for place in range(begin, end):
            total += cost[rows[place]]
            least = min(least, cost[rows[place]])
        if total <= free:
            for place in range(begin, end):
                rows[found], rows[place] = rows[place], rows[found]
                found += 1
            free -= total
            need += total
        elif least <= free:
            ends[parts] = _split(rows, begin, end, key, workers)
            parts += 1
            continue
        begin = end
        parts -= 1
    return found, need


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
    mine, its = np.inf if np.isnan(mine) else mine, np.inf if np.isnan(its) else its
    if mine != its:
        return bool(mine < its)
    if (workers[one] == 0) != (workers[other] == 0):
        return bool(workers[other] == 0)
    return one < other


class Loops(NamedTuple):
    """The loops that others call."""

    fit_in_order: Callable[[Ints, Ints, Ints, int, Ints], bool]
    fit_by_key: Callable[[Floats, Ints, Ints, Ints, int, int, Ints], None]
    go_back: Callable[[Floats, Floats, Floats, Ints, float, float, float, Bools, Bools], tuple[float, bool]]
    serve_queues: Callable[[Bools, Floats, Ints, Ints, Ints, int, int, Ints], tuple[Ints, bool]]
    next_demotion: Callable[[float, Floats, Bools, Bools, Ints, Ints], float]
    along: Callable[[Floats, Floats, float], Floats]
    differing: Callable[[Ints, Ints, Ints], int]
    tightest: Callable[[Ints, int], int]
    emptiest_first: Callable[[Ints, int, int], Ints]


PLAIN = Loops(
    fit_in_order, fit_by_key, go_back, serve_queues, next_demotion, along, differing, tightest, emptiest_first
)
"""As they stand here: slow, for comparison."""


class _Chosen:
    loops: Loops | None = None
    is_hopeless = False
    """They could not be compiled: to try again would take as long and end alike."""


def machine_code() -> Loops | None:
    """The loops to use instead of columns; None: none, until `compile_loops` was called."""
    return _Chosen.loops


def use(loops: Loops | None) -> None:
    """From now on, in this process."""
    _Chosen.loops, _Chosen.is_hopeless = loops, False


def compile_loops() -> bool:
    """Use machine code from now on; False if there is none to be had, because `numba` is not installed, not able to
    work or may not keep what it made. Takes some ten seconds for the first time on a machine, then about one.

    To be called before there is anything large: what exists by then is taken to stay.
    """
    if machine_code() is None and not _Chosen.is_hopeless:
        try:
            use(_compiled())
        except Exception:  # of many kinds, and whatever it is: columns do
            _Chosen.is_hopeless = True
            return False
        gc.collect()
        gc.freeze()  # else the compiler's hundred thousand objects are looked through again and again
    return machine_code() is not None


def _compiled() -> Loops:
    import numba
    from numba.extending import register_jitable

    if getattr(numba.config, "DISABLE_JIT", False):
        raise RuntimeError("numba was told not to compile")
    for inner in (tightest, _fitting, _split, _precedes):
        register_jitable(inner)
    signatures = _signatures(numba.types)
    return Loops(*(numba.njit(each, cache=True)(loop) for loop, each in zip(PLAIN, signatures, strict=True)))


def _signatures(kinds: Any) -> tuple[Any, ...]:
    """What each of the loops takes and returns, in the words of `numba`."""
    whole, real, flag = kinds.int64, kinds.float64, kinds.boolean
    ints, floats, flags = (kinds.Array(kind, 1, "A", readonly=True) for kind in (whole, real, flag))
    ints_out, floats_out, flags_out = (kinds.Array(kind, 1, "C") for kind in (whole, real, flag))
    return (
        flag(ints, ints, ints, whole, ints_out),
        kinds.none(floats, ints, ints, ints, whole, whole, ints_out),
        kinds.Tuple((real, flag))(floats, floats, floats, ints, real, real, real, flags_out, flags_out),
        kinds.Tuple((ints_out, flag))(flags, floats, ints, ints, ints, whole, whole, ints_out),
        real(real, floats, flags, flags, ints, ints),
        floats_out(floats, floats, real),
        whole(ints, ints, ints_out),
        whole(ints, whole),
        kinds.Array(whole, 2, "C")(ints_out, whole, whole),
    )
