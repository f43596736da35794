"""First fit and best fit against the definitions of both, on random inputs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.engine.kernels.bin_packing import best_fit, first_fit, first_fit_by_key
from sterna.model.cluster import Ints


def reference_first_fit(costs: list[int], free: int, skip: bool) -> list[bool]:
    taken: list[bool] = []
    for cost in costs:
        fits = cost <= free
        if not fits and not skip:
            return taken + [False] * (len(costs) - len(taken))
        taken.append(fits)
        free -= cost * fits
    return taken


def reference_best_fit(free: list[int], need: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return the tightest node that holds all workers, else the emptiest node, and so on with the other workers."""
    free, pairs = free.copy(), []
    while count:
        holding = [node for node in range(len(free)) if free[node] >= count * need]
        if holding:
            node = min(holding, key=lambda node: (free[node], node))
        else:
            node = max(range(len(free)), key=lambda node: (free[node], -node))
        here = min(count, free[node] // need)
        if here <= 0:
            break
        pairs.append((node, here))
        free[node] -= here * need
        count -= here
    return tuple(pairs)


def column(values: list[int]) -> Ints:
    """Return a read-only array, like the columns of a snapshot."""
    values_ = np.array(values, dtype=np.int64)
    values_.flags.writeable = False
    return values_


@pytest.mark.parametrize("most", [30, 300])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_first_fit_takes_what_fits_in_order(seed: int, skip: bool, most: int) -> None:
    random = Random(seed)
    for _ in range(200):
        unit = random.choice((1, 250, 1000))
        costs = [random.randint(1, 6) * unit for _ in range(random.randint(0, most))]
        free = random.randint(0, 40) * unit
        smallest = random.choice((1, unit, min(costs, default=1)))
        assert first_fit(column(costs), free, smallest, skip=skip).tolist() == reference_first_fit(costs, free, skip)


def test_first_fit_takes_jobs_that_cost_nothing() -> None:
    assert first_fit(column([0, 5, 0, 1]), 0, 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_first_fit_by_key_is_first_fit_over_sorted_rows(seed: int) -> None:
    """Smallest key first, NaN last; ties go to running jobs, then to the lower row."""
    random = Random(seed)
    for _ in range(300):
        count = random.randint(0, 40)
        keys = [random.choice((float(random.randint(0, 6)), np.nan, np.inf)) for _ in range(count)]
        costs = [random.randint(1, 5) for _ in range(count)]
        workers = [random.choice((0, 2)) for _ in range(count)]
        rows = [row for row in range(count) if random.random() < 0.8]
        free = random.randint(0, 12)
        known = [np.inf if np.isnan(key) else key for key in keys]
        order = sorted(rows, key=lambda row: (known[row], workers[row] == 0, row))
        fits = reference_first_fit([costs[row] for row in order], free, skip=True)
        expected = [row for row, fit in zip(order, fits, strict=True) if fit]
        chosen, left = first_fit_by_key(column(rows), np.array(keys), column(costs), column(workers), free)
        assert sorted(chosen.tolist()) == sorted(expected)
        assert left == free - sum(costs[row] for row in expected)


def test_first_fit_by_key_reads_columns_of_any_stride() -> None:
    costs, keys = np.arange(20, dtype=np.int64)[::2], np.arange(20.0)[::-2]
    chosen, left = first_fit_by_key(np.arange(10), keys, costs, np.zeros(10, dtype=np.int64), 20, 0)
    assert (sorted(chosen.tolist()), left) == ([0, 1, 9], 0)


@pytest.mark.parametrize("seed", range(5))
def test_best_fit_takes_the_tightest_node_else_the_emptiest(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        free = [random.randint(-1, 8) * 500 for _ in range(random.randint(1, 12))]
        need, count = random.choice((500, 1000, 2000)), random.randint(1, 20)
        assert best_fit(column(free), need, count) == [reference_best_fit(free, need, count)]


@pytest.mark.parametrize("seed", range(5))
def test_best_fit_of_many_jobs_is_that_of_one_after_the_other(seed: int) -> None:
    """Including jobs larger than a node; the last job may be incomplete."""
    random = Random(seed)
    for _ in range(200):
        free = [random.randint(0, 8) * 1000 for _ in range(random.randint(1, 12))]
        left, count, jobs = free.copy(), random.randint(1, 20), random.randint(1, 15)
        expected: list[tuple[tuple[int, int], ...]] = []
        while len(expected) < jobs:
            pairs = reference_best_fit(left, 1000, count)
            expected.append(pairs)
            if sum(here for _, here in pairs) < count:
                break
            for node, here in pairs:
                left[node] -= here * 1000
        assert best_fit(column(free), 1000, count, jobs) == expected


def test_best_fit_leaves_its_input_unchanged() -> None:
    free = np.array([2000, 3000])
    best_fit(free, 1000, 4)
    assert free.tolist() == [2000, 3000]


def test_best_fit_without_nodes_places_no_workers() -> None:
    assert best_fit(column([]), 1000, 2) == [()]
