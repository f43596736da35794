"""The simulator and a brute-force one, written apart, agree on when every job ends."""

from __future__ import annotations

from random import Random

import pytest

from sterna.backends.simulated.costs import Fault
from tests.builders import AJob, a_job
from tests.simulation.brute import RULES, BruteJob, finish_times
from tests.simulation.runs import a_run


def some_jobs(random: Random, count: int, devices: int) -> list[AJob]:
    jobs, now = [], 0.0
    for number in range(count):
        now += random.choice((0.0, random.expovariate(0.2)))
        minimum = random.randint(1, min(4, devices))
        gains = sorted((random.random() for _ in range(6)), reverse=True)
        speeds = [1.0]
        for gain in gains:
            speeds.append(speeds[-1] + gain)
        jobs.append(
            a_job(
                f"j{number:03d}",
                (minimum, minimum + random.randint(0, 4)),
                submit=now,
                remaining=random.uniform(1, 60),
                speedup=random.choice((None, tuple(speeds))),
            )
        )
    return jobs


def as_brute(job: AJob) -> BruteJob:
    curve = job.speedup

    def speed(workers: int) -> float:
        if curve is None or not workers:
            return float(workers)
        return curve[min(workers, len(curve)) - 1]

    speeds = [speed(workers) for workers in range(job.maximum + 1)]
    return BruteJob(job.name, job.submit, job.minimum, job.maximum, job.remaining, speeds)


@pytest.mark.parametrize("policy", RULES)
@pytest.mark.parametrize("seed", range(6))
def test_every_job_ends_when_the_brute_force_simulation_ends_it(policy: str, seed: int) -> None:
    random = Random(seed)
    devices = random.choice((3, 5, 8, 13))
    jobs = some_jobs(random, random.randint(20, 60), devices)
    expected = finish_times([as_brute(job) for job in jobs], devices, RULES[policy])
    for is_recorded in (True, False):
        found = a_run(jobs, f"1x{devices}", policy, "none", is_recorded=is_recorded).finish
        assert found == pytest.approx(expected, abs=1e-6, rel=1e-9)


@pytest.mark.parametrize(
    "policy", ["fifo", "fifo:preempt=false", "fifo:preempt=false:backfill=false", "srjf", "tiresias"]
)
@pytest.mark.parametrize("seed", range(4))
def test_rounds_that_are_skipped_would_have_changed_nothing(policy: str, seed: int) -> None:
    """With priorities, parts of devices and a node that is lost: recorded or not, every job ends when it did."""
    random = Random(seed)
    parts = (1,) if seed % 2 else (1, 2, 0.5)
    jobs = [
        a_job(
            f"j{n:02d}",
            random.randint(1, 3),
            submit=float(random.randint(0, 60)),
            remaining=random.uniform(1, 30),
            devices=random.choice(parts),
            priority=-random.randint(0, 1) if seed > 1 else 0,
        )
        for n in range(40)
    ]
    faults = [Fault(1, 20.5, 15)]
    logged, plain = (a_run(jobs, "2x3", policy, faults=faults, is_recorded=each).finish for each in (True, False))
    assert logged == plain


@pytest.mark.parametrize(
    "policy", ["fifo", "srjf", "elastic-fifo", "elastic-srjf", "ffdl", "afs-l", "tiresias", "dragon"]
)
def test_devices_on_one_node_are_devices_that_are_only_counted(policy: str) -> None:
    """Placing changes nothing if every placement fits."""
    random = Random(7)
    jobs = some_jobs(random, 40, 8)
    counted = a_run(jobs, "1x8", policy, "none")
    for placement in ("stay", "pack", "spread", "topology"):
        placed = a_run(jobs, "1x8", policy, placement)
        assert placed.finish == counted.finish
        assert placed.log.actions == counted.log.actions


@pytest.mark.parametrize("policy", ["fifo", "elastic-srjf", "elastic-tiresias", "afs-l", "dragon"])
def test_work_is_neither_made_nor_lost(policy: str) -> None:
    """With linear curves and no costs the devices in use, added up over time, are all the work there is."""
    random = Random(11)
    jobs = [a_job(f"j{n:02d}", (1, 4), submit=float(n), remaining=random.uniform(5, 50)) for n in range(40)]
    run = a_run(jobs, "2x4", policy, "spread")
    assert run.backend.counters.device_seconds == pytest.approx(sum(job.remaining for job in jobs))
    assert all(finish < float("inf") for finish in run.finish.values())
