"""Voda's algorithms on the vectors worked out by hand, V1 to V20, at the value a correct version gives.

Jobs are listed in submit order; what each must get stands beside them. Numbers in brackets are VODA items.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.builders import AJob, a_job, a_snapshot, decided

INC = (1, 1.842, 2.692, 3.5)
RES = (1, 1.857, 2.6, 3.25)
VGG = (1, 1.785, 2.5, 3.125)
TR = (1, 1.657, 2.148, 2.521)


class Vector(NamedTuple):
    name: str
    policy: str
    devices: int
    jobs: list[AJob]
    expected: list[int]


def in_turn(*jobs: AJob) -> list[AJob]:
    """The jobs, submitted one second after the other."""
    return [replace(job, submit=float(second), name=f"{second:02d}") for second, job in enumerate(jobs)]


def alike(count: int, job: AJob) -> list[AJob]:
    return in_turn(*[job] * count)


def start(job: AJob, workers: int, at: float) -> AJob:
    return replace(job, on=(("anywhere", workers),), first_start=at)


def with_curves(*curves: tuple[float, ...], remaining: tuple[float, ...] = (), workers: int = 2) -> list[AJob]:
    lengths = remaining or (100.0,) * len(curves)
    pairs = zip(curves, lengths, strict=True)
    return in_turn(*[a_job("", (1, 4), workers=workers, speedup=curve, remaining=left) for curve, left in pairs])


LOW = a_job("", (1, 8), workers=4, priority=-1)

VECTORS = [
    Vector(
        "V1 a gap is filled past a job that does not fit [29]", "fifo", 6, in_turn(a_job("", 8), a_job("", 2)), [0, 2]
    ),
    Vector("V2 one more each and round [30]", "elastic-fifo", 12, alike(5, a_job("", (1, 4))), [3, 3, 2, 2, 2]),
    Vector(
        "V3 a refused job gets nothing at all [31]", "elastic-fifo", 4, in_turn(a_job("", (1, 4)), a_job("", 4)), [4, 0]
    ),
    Vector(
        "V4 nobody above its maximum [30]",
        "elastic-fifo",
        10,
        in_turn(a_job("", (2, 3)), a_job("", (1, 8)), a_job("", 1)),
        [3, 6, 1],
    ),
    Vector(
        "V5 a rigid job stays at its size [33]",
        "elastic-srjf",
        6,
        in_turn(a_job("", 2, remaining=1), a_job("", (1, 4), remaining=2)),
        [2, 4],
    ),
    Vector(
        "V5b the shortest is served first in every round [33]",
        "elastic-srjf",
        8,
        in_turn(a_job("", (1, 4), remaining=100), a_job("", (1, 4), remaining=10), a_job("", (1, 2), remaining=50)),
        [3, 3, 2],
    ),
    Vector(
        "V6 what is left goes where it adds most [38]",
        "elastic-tiresias",
        12,
        with_curves(INC, RES, INC, VGG, VGG),
        [3, 2, 3, 2, 2],
    ),
    Vector(
        "V7 the first queue first, what does not fit is skipped [34]",
        "tiresias",
        8,
        in_turn(
            start(a_job("", 4, priority=-1), 4, at=5),
            start(a_job("", 4), 4, at=9),
            a_job("", 2),
        ),
        [0, 4, 2],
    ),
    Vector(
        "V8 a job that never started ranks last in its queue [35]",
        "tiresias",
        6,
        in_turn(start(a_job("", 4), 4, at=100), start(a_job("", 2, priority=-1), 2, at=50), a_job("", 4)),
        [4, 2, 0],
    ),
    Vector(
        "V9 nothing idles while somebody gains [38]", "elastic-tiresias", 7, in_turn(a_job("", (4, 8), workers=4)), [7]
    ),
    Vector(
        "V10 ten waiting jobs do not compact [40]",
        "elastic-tiresias",
        4,
        in_turn(start(LOW, 4, at=0), *[LOW] * 10),
        [4] + [0] * 10,
    ),
    Vector(
        "V11 eleven do, and those that wait get the room [40]",
        "elastic-tiresias",
        4,
        in_turn(start(LOW, 4, at=0), *[LOW] * 11),
        [1, 1, 1, 1] + [0] * 8,
    ),
    Vector("V12 ties favour the earlier [43]", "ffdl", 8, alike(3, a_job("", (1, 8))), [6, 1, 1]),
    Vector("V13 the first so many jobs get one each [42]", "ffdl", 3, alike(5, a_job("", (1, 4))), [1, 1, 1, 0, 0]),
    Vector("V14 the minimum is honoured [42]", "ffdl", 4, alike(2, a_job("", (2, 4))), [2, 2]),
    Vector("V15 most speed-up in all [42]", "ffdl", 12, with_curves(INC, RES, INC, VGG, VGG), [4, 2, 4, 1, 1]),
    Vector(
        "V16 a short job gets more, a long one not nothing [44]",
        "afs-l",
        8,
        in_turn(a_job("", (1, 8), remaining=10), a_job("", (1, 8), remaining=100)),
        [5, 3],
    ),
    Vector(
        "V17 real curves [44]",
        "afs-l",
        12,
        with_curves(INC, RES, INC, VGG, VGG, remaining=(900, 700, 950, 400, 450)),
        [2, 2, 2, 3, 3],
    ),
    Vector("V18 three models [44]", "afs-l", 8, with_curves(INC, VGG, TR, remaining=(3000, 1000, 2000)), [3, 3, 2]),
    Vector(
        "V18 with two devices the shortest two get them [45]",
        "afs-l",
        2,
        with_curves(INC, VGG, TR, remaining=(3000, 1000, 2000)),
        [0, 1, 1],
    ),
    Vector(
        "V19 the minimum is honoured [44]",
        "afs-l",
        3,
        in_turn(a_job("", (2, 4), remaining=5), a_job("", (2, 4), remaining=6)),
        [3, 0],
    ),
    Vector("V20 an earlier job wins a tie [47]", "afs-l", 1, alike(2, a_job("", 1, remaining=7)), [1, 0]),
]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_vector(vector: Vector) -> None:
    devices = vector.devices
    result = decided(a_snapshot(vector.jobs, devices, now=200), vector.policy, "none")
    assert list(result.allocation.values()) == vector.expected


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_vector_by_vodas_name(vector: Vector) -> None:
    """VODA-25: all eight names are accepted."""
    names = {
        "fifo": "FIFO",
        "elastic-fifo": "ElasticFIFO",
        "elastic-srjf": "ElasticSRJF",
        "tiresias": "Tiresias",
        "elastic-tiresias": "ElasticTiresias",
        "ffdl": "FfDLOptimizer",
        "afs-l": "AFS-L",
    }
    result = decided(a_snapshot(vector.jobs, vector.devices, now=200), names[vector.policy], "none")
    assert list(result.allocation.values()) == vector.expected
