"""The loop-free allocation by marginal gain equals handing out worker by worker."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.engine.ordering.marginal_gain import spend_by_gain
from sterna.model.snapshot import Snapshot
from tests.builders import a_job, a_snapshot

CURVES = (None, (1.0, 1.9, 2.7, 3.4), (1.0, 1.5), (1.0, 1.5, 2.0, 2.0), (1.0,))


def one_by_one(snapshot: Snapshot, target: list[int], free: int) -> list[int]:
    """Give each worker to the job with the largest gain, ties to the first; stop when no gain is positive."""
    jobs, curves = snapshot.jobs, snapshot.curves
    for _ in range(free):
        gains = []
        for row, held in enumerate(target):
            code = jobs.curve.item(row)
            gain = curves.speed_of(code, held + 1) - curves.speed_of(code, held)
            gains.append(gain if held < jobs.maximum.item(row) else 0.0)
        best = max(gains)
        if best <= 0:
            break
        target[gains.index(best)] += 1
    return target


@pytest.mark.parametrize("seed", range(5))
def test_workers_go_where_they_add_most(seed: int) -> None:
    """Too few for all jobs, just enough, and more than they can use."""
    random = Random(seed)
    for _ in range(100):
        jobs = []
        for number in range(random.randint(1, 12)):
            least = random.randint(1, 2)
            bounds = least, least + random.randint(0, 5)
            jobs.append(a_job(f"j{number:02}", bounds, speedup=random.choice(CURVES)))
        snapshot = a_snapshot(jobs, 64)
        target = snapshot.jobs.minimum.copy()
        free = random.randint(0, 40)
        spend_by_gain(target, np.arange(len(jobs)), snapshot, free * 1000)
        assert target.tolist() == one_by_one(snapshot, snapshot.jobs.minimum.tolist(), free)
