"""Compiled and pure-Python kernels make the same plans: every action of whole simulations at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sterna.backends.simulated.nodes import simulated_nodes
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import Shape
from tests.builders import AJob, a_job, a_node, a_snapshot, decided
from tests.kernel_builds import MODULES
from tests.properties.clusters import NOW
from tests.simulation.runs import a_run

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("fifo", "srjf", "srjf:by=time", "tiresias", "tiresias:promote=0", "tiresias:threshold=300:promote=2")
ELASTIC = ("elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "dragon")

PURE_RUN = """
import json
from tests.kernel_builds import use_kernels
use_kernels("pure")
from tests.simulation.test_kernels import simulate_all
print(json.dumps(simulate_all()))
"""


def contending_jobs(seed: int, **needs: Any) -> list[AJob]:
    """Rigid jobs, more than fit at once, with ties in every column."""
    random = Random(seed)
    return [
        a_job(
            f"j{number}",
            random.choice((1, 1, 2, 3, 8, 12)),
            submit=float(random.randint(0, 2000)),
            remaining=float(random.choice((100, 300, 300, 2000))) * random.randint(1, 5),
            **needs,
        )
        for number in range(80)
    ]


def simulate_all() -> dict[str, list[str]]:
    """Return all actions of a number of simulations, as text."""
    elastic = [a_job(f"e{number}", (1, 4), submit=10.0 * number, remaining=500.0 + number) for number in range(30)]
    runs = {f"{policy} {seed}": (contending_jobs(seed), policy) for policy in POLICIES for seed in range(2)}
    runs |= {f"{policy} on two devices": (contending_jobs(3, devices=2), policy) for policy in POLICIES}
    runs |= {policy: (elastic, policy) for policy in ELASTIC}
    return {
        name: [str(each) for each in a_run(jobs, "3x8", policy).log.actions] for name, (jobs, policy) in runs.items()
    }


def test_compiled_and_pure_kernels_make_the_same_plans() -> None:
    if any(Path(str(sys.modules[name].__file__)) == source for name, source in MODULES.items()):
        pytest.skip("the kernels of this process are not all compiled: there was no C compiler, or --kernels=pure")
    command = [sys.executable, "-c", PURE_RUN]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}/src:{ROOT}"})
    compiled = simulate_all()
    assert compiled == json.loads(done.stdout)
    assert all(compiled.values())


@pytest.mark.parametrize("policy", ["srjf", "srjf:by=time", "elastic-srjf"])
@pytest.mark.parametrize("known", [0, 30])
def test_jobs_of_unknown_length_fill_what_the_others_leave(policy: str, known: int) -> None:
    unknown = [a_job(f"u{number}", remaining=np.nan, submit=50.0 + number) for number in range(20)]
    jobs = [*[a_job(f"k{number}", 5, submit=float(number)) for number in range(known)], *unknown]
    given = decided(a_snapshot(jobs, 8), policy).allocation
    assert sum(given.values()) == 8
    assert given["u0"] == 1


def test_over_committed_cluster_stops_no_job() -> None:
    jobs = [
        a_job("second", 2, attained=9000.0, executed=9000.0, first_start=1.0, on={"n0": 2}),
        a_job("first", 2, submit=5.0),
    ]
    nodes = [a_node("n0", 4, foreign_devices=7)]
    assert decided(a_snapshot(jobs, nodes, now=NOW), "tiresias").allocation == {"second": 2, "first": 0}


def test_job_of_unknown_length_comes_last() -> None:
    jobs = [a_job("unknown", 4, remaining=np.nan), a_job("long", 4, remaining=1e6), a_job("short", 4, remaining=1.0)]
    assert decided(a_snapshot(jobs, 8), "srjf").allocation == {"unknown": 0, "long": 4, "short": 4}


@pytest.mark.parametrize("name", ["remaining", "attained", "executed"])
def test_columns_of_a_snapshot_are_read_only(name: str) -> None:
    jobs = a_run([a_job("a")], "1x1", "fifo").backend.observe().jobs
    assert not getattr(jobs, name).flags.writeable


@pytest.mark.parametrize("seed", range(30))
def test_many_equal_jobs_go_where_one_after_the_other_would(seed: int) -> None:
    random = Random(seed)
    nodes = simulated_nodes(",".join(f"{random.randint(1, 4)}x{random.randint(1, 8)}" for _ in range(6)))
    shape, count, jobs = Shape(devices=random.choice((1000, 2000))), random.randint(5, 20), random.randint(1, 15)
    at_once, one_by_one = FreeCapacity(nodes), FreeCapacity(nodes)
    for pairs in at_once.take_tightest(shape, count, jobs):
        assert list(one_by_one.tightest(shape, count)) == list(pairs)
        one_by_one.take_workers(shape, pairs)
    assert (at_once.free == one_by_one.free).all()
    assert (at_once.free >= 0).all()
