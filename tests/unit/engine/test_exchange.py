"""Exchanges come to the same as a walk over everybody."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.engine.kernels.incremental_walk import best_that_fit, refused, total


def in_turn(order: list[int], sizes: list[int], free: int) -> tuple[list[int], int]:
    """Who does not fit, asked one by one, and what is left."""
    losers = []
    for place in order:
        if sizes[place] <= free:
            free -= sizes[place]
        else:
            losers.append(place)
    return losers, free


@pytest.mark.parametrize("most", [6, 200])
@pytest.mark.parametrize("seed", range(5))
def test_those_refused_are_those_whom_the_walk_passes_over(seed: int, most: int) -> None:
    """Few ties and many, few losers and many."""
    random = Random(seed)
    for _ in range(300):
        count = random.randint(1, 60)
        keys = [float(random.randint(0, most)) for _ in range(count)]
        sizes = [random.choice((1, 2, 4, 8)) for _ in range(count)]
        over = random.randint(1, sum(sizes))
        order = sorted(range(count), key=lambda place: (keys[place], place))
        expected, left = in_turn(order, sizes, sum(sizes) - over)
        before = np.array(keys)
        found, rest = refused(before, np.array(sizes), over, 1)
        assert (sorted(found), rest) == (sorted(expected), left)
        assert before.tolist() == keys


@pytest.mark.parametrize("seed", range(5))
def test_the_best_that_fit_are_those_whom_the_walk_takes(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        free = random.randint(1, 40)
        sizes = [random.randint(1, min(8, free)) for _ in range(random.randint(1, 40))]
        keys = [float(random.randint(0, 9)) for _ in sizes]
        order = sorted(range(len(sizes)), key=lambda place: (keys[place], place))
        losers, left = in_turn(order, sizes, free)
        rows = np.arange(len(sizes)) + 100
        chosen, rest = best_that_fit(rows, np.array(keys), np.array(sizes), free, 1)
        assert {row - 100 for row in chosen} == set(range(len(sizes))) - set(losers)
        assert rest == left


def test_a_total_is_a_total() -> None:
    assert total(np.arange(5)) == 10
    assert total(np.arange(500)) == 124_750
