"""Walks without loops do what the loop would do, whatever the sizes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.engine.kernels.walk import minimum_in_order, walk, walk_by
from sterna.model.snapshot import Snapshot
from tests.builders import a_job, a_snapshot


def plain_walk(sizes: list[int], free: int, skip: bool) -> list[bool]:
    taken: list[bool] = []
    for size in sizes:
        fits = size <= free
        if not fits and not skip:
            return taken + [False] * (len(sizes) - len(taken))
        taken.append(fits)
        free -= size * fits
    return taken


@pytest.mark.parametrize("most", [30, 300])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_walk_is_the_loop(seed: int, skip: bool, most: int) -> None:
    """Whether few may still fit after the first refusal or many."""
    random = Random(seed)
    for _ in range(200):
        unit = random.choice((1, 250, 1000))
        sizes = [random.randint(1, 6) * unit for _ in range(random.randint(0, most))]
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


def a_queue(random: Random, *, is_settled: bool) -> Snapshot:
    """More rigid jobs than devices, some of which run: those whom a walk over all would take, less a few that are not
    there any more, or anybody."""
    most = random.randint(1, 12)
    sizes = [random.choice((1, 1, 1, 2, 4, 8)) for _ in range(most + random.randint(2, 20))]
    runs = plain_walk(sizes, most, skip=True)
    if not is_settled:
        runs = plain_walk([size if random.random() < 0.5 else most + 1 for size in sizes], most, skip=True)
    jobs = [
        a_job(f"j{number:02}", size, on={"n0": size} if fits else {})
        for number, (size, fits) in enumerate(zip(sizes, runs, strict=True))
        if not is_settled or random.random() < 0.95
    ]
    return a_snapshot(jobs, most)


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_who_gets_its_minimum_does_not_depend_on_who_runs(seed: int, is_settled: bool) -> None:
    """Nobody joins, some do, or somebody has to stop: it comes to the same as asking everybody anew."""
    random = Random(seed)
    for _ in range(200):
        snapshot = a_queue(random, is_settled=is_settled)
        sizes = snapshot.jobs.minimum.tolist()
        fits = plain_walk([size * 1000 for size in sizes], snapshot.units, skip=True)
        expected = [size * fit for size, fit in zip(sizes, fits, strict=True)]
        assert minimum_in_order(snapshot).tolist() == expected


def test_a_queue_that_nobody_can_leave_stays_the_very_same() -> None:
    """So that nobody has to compare what is with what is wanted."""
    jobs = [a_job("a", on={"n0": 1}), a_job("b", 4), a_job("c", 2, on={"n0": 2}), *[a_job(f"d{n}") for n in range(9)]]
    snapshot = a_snapshot(jobs, 3)
    assert minimum_in_order(snapshot) is snapshot.jobs.workers
