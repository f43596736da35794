"""Walks without loops do what the loop would do, whatever the sizes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.engine.walk import walk, walk_by


def plain_walk(sizes: list[int], free: int, skip: bool) -> list[bool]:
    taken: list[bool] = []
    for size in sizes:
        fits = size <= free
        if not fits and not skip:
            return taken + [False] * (len(sizes) - len(taken))
        taken.append(fits)
        free -= size * fits
    return taken


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_walk_is_the_loop(seed: int, skip: bool) -> None:
    random = Random(seed)
    for _ in range(300):
        unit = random.choice((1, 250, 1000))
        sizes = [random.randint(1, 6) * unit for _ in range(random.randint(0, 30))]
        free = random.randint(0, 40) * unit
        smallest = random.choice((1, unit, min(sizes, default=1)))
        assert walk(np.array(sizes, dtype=np.int64), free, smallest, skip=skip).tolist() == plain_walk(
            sizes, free, skip
        )


def test_walk_lets_those_pass_that_need_nothing() -> None:
    assert walk(np.array([0, 5, 0, 1]), 0, 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_walk_by_is_the_loop_over_sorted_rows(seed: int) -> None:
    """Smallest key first; among equals those that run, then the row; and it says what is left."""
    random = Random(seed)
    for _ in range(300):
        count = random.randint(0, 40)
        keys = [float(random.randint(0, 6)) for _ in range(count)]
        sizes = [random.randint(1, 5) for _ in range(count)]
        workers = [random.choice((0, 2)) for _ in range(count)]
        free = random.randint(0, 12)
        order = sorted(range(count), key=lambda row: (keys[row], workers[row] == 0, row))
        fits = plain_walk([sizes[row] for row in order], free, skip=True)
        expected = [row for row, fit in zip(order, fits, strict=True) if fit]
        rows, left = walk_by(np.array(keys), np.array(sizes, dtype=np.int64), np.array(workers, dtype=np.int64), free)
        assert rows.tolist() == expected
        assert left == free - sum(sizes[row] for row in expected)
