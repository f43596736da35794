"""The minimum in submit order does not depend on which jobs run."""

from __future__ import annotations

from random import Random

import pytest

from sterna.engine.ordering.submit_order import fit_minimum_in_order
from tests.builders import a_job, a_snapshot


def greedy(sizes: list[int], free: int) -> list[int]:
    """Return the size of each job that fits in order, else 0."""
    given = []
    for size in sizes:
        given.append(size if size <= free else 0)
        free -= given[-1]
    return given


@pytest.mark.parametrize("is_stable", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_minimum_in_order_does_not_depend_on_running_jobs(seed: int, is_stable: bool) -> None:
    """`is_stable`: the jobs that run are those that a first fit over all would take, less a few that have ended."""
    random = Random(seed)
    for _ in range(200):
        devices = random.randint(1, 12)
        sizes = [random.choice((1, 1, 1, 2, 4, 8)) for _ in range(devices + random.randint(2, 20))]
        wanted = sizes if is_stable else [size if random.random() < 0.5 else devices + 1 for size in sizes]
        jobs = [
            a_job(f"j{number:02}", size, on={"n0": size} if runs else {})
            for number, (size, runs) in enumerate(zip(sizes, greedy(wanted, devices), strict=True))
            if not is_stable or random.random() < 0.95
        ]
        snapshot = a_snapshot(jobs, devices)
        assert fit_minimum_in_order(snapshot).tolist() == greedy(snapshot.jobs.minimum.tolist(), devices)
