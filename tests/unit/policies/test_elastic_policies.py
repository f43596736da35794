"""`ffdl` against brute force, `afs-l` against its rule read literally, on many random small cases. VODA-42 to 45."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from tests.builders import AJob, a_job, a_snapshot, decided


def some_curve(random: Random) -> tuple[float, ...] | None:
    """A random concave curve; every third is linear, some are flat at the end."""
    if random.random() < 1 / 3:
        return None
    gains = sorted((random.random() for _ in range(random.randint(1, 6))), reverse=True)
    speeds = [1.0]
    for gain in gains:
        speeds.append(speeds[-1] + gain)
    return tuple(speeds + speeds[-1:] * random.randint(0, 2))


def some_jobs(random: Random, count: int) -> list[AJob]:
    jobs = []
    for number in range(count):
        least = random.choice((1, 1, 2, 3))
        jobs.append(
            a_job(
                f"j{number:03d}",
                (least, least + random.randint(0, 4)),
                submit=float(random.randint(0, 2)),
                remaining=float(random.choice((10, 10, 25, 60, random.randint(1, 99)))),
                speedup=some_curve(random),
            )
        )
    return sorted(jobs, key=lambda job: (job.submit, job.name))


def speed(job: AJob, workers: int) -> float:
    if job.speedup is None:
        return float(workers)
    return job.speedup[min(workers, len(job.speedup)) - 1] if workers else 0.0


# ffdl


def admit(jobs: Sequence[AJob], devices: int) -> list[AJob]:
    """Jobs that get their minimum in submit order."""
    chosen = []
    for job in jobs:
        if job.minimum <= devices:
            chosen.append(job)
            devices -= job.minimum
    return chosen


def best_total(jobs: Sequence[AJob], devices: int) -> float:
    sizes = product(*[range(job.minimum, job.maximum + 1) for job in jobs])
    totals = [sum(map(speed, jobs, size)) for size in sizes if sum(size) <= devices]
    return max(totals, default=0.0)


@pytest.mark.parametrize("seed", range(8))
def test_ffdl_is_as_good_as_trying_everything(seed: int) -> None:
    """VODA-42: among the jobs admitted in submit order no allocation has more speed-up in all."""
    random = Random(seed)
    for _ in range(40):
        jobs, devices = some_jobs(random, random.randint(1, 5)), random.randint(1, 10)
        allocation = decided(a_snapshot(jobs, devices), "ffdl", "none").allocation
        chosen = admit(jobs, devices)
        assert {name for name, workers in allocation.items() if workers} == {job.name for job in chosen}
        assert sum(allocation.values()) <= devices
        total = sum(speed(job, allocation[job.name]) for job in chosen)
        assert total == pytest.approx(best_total(chosen, devices), abs=1e-9)


def test_ffdl_counts_gains_per_device_where_workers_need_different_numbers_of_them() -> None:
    """Good, not always the best: here 4.25 of 4.4, because the device that is left over is too few for two."""
    one = a_job("one", (1, 6), speedup=(1, 1.5, 2, 2.25, 2.5, 2.6))
    two = a_job("two", (1, 5), submit=1, devices=2, speedup=(1, 2, 2.9, 3, 3.1))
    allocation = decided(a_snapshot([one, two], 8), "ffdl", "none").allocation
    assert allocation == {"one": 4, "two": 2}
    assert speed(one, 4) + speed(two, 2) == 4.25
    assert speed(one, 2) + speed(two, 3) == pytest.approx(4.4)


# afs-l


def literal_shares(jobs: Sequence[AJob], devices: int) -> dict[str, int]:
    """One device at a time to the winner of a scan in order, until no job can have more."""
    workers = {job.name: 0 for job in jobs}
    asking = list(jobs)
    while asking:
        asking = [job for job in asking if workers[job.name] < job.minimum or gains_more(job, workers[job.name])]
        if not asking:
            break
        winner = asking[0]
        for other in asking[1:]:
            if takes_over(other, workers[other.name], winner, workers[winner.name]):
                winner = other
        step = 1 if workers[winner.name] else winner.minimum
        if step > devices:
            asking = [job for job in asking if job is not winner]
            continue
        workers[winner.name] += step
        devices -= step
    return workers


def gains_more(job: AJob, workers: int) -> bool:
    return workers < job.maximum and speed(job, workers + 1) > speed(job, workers)


def takes_over(later: AJob, later_workers: int, holder: AJob, holder_workers: int) -> bool:
    """Return True if the later of two jobs gets the device: the longer must gain relatively more than the shorter
    forgoes."""
    if not later_workers and not holder_workers:
        return later.remaining < holder.remaining
    later_length = later.remaining / speed(later, later_workers) if later_workers else float("inf")
    holder_length = holder.remaining / speed(holder, holder_workers) if holder_workers else float("inf")
    if later_length < holder_length:
        return not offers(holder, holder_workers) > forgoes(later, later_workers)
    return offers(later, later_workers) > forgoes(holder, holder_workers)


def offers(job: AJob, workers: int) -> float:
    if not workers:
        return 1.0
    return (speed(job, workers + 1) - speed(job, workers)) / speed(job, workers + 1)


def forgoes(job: AJob, workers: int) -> float:
    return (speed(job, workers + 1) - speed(job, workers)) / speed(job, workers)


def random_jobs(seed: int, cases: int, sizes: tuple[int, int]) -> Iterator[tuple[list[AJob], int]]:
    random = Random(seed)
    for _ in range(cases):
        jobs = some_jobs(random, random.randint(*sizes))
        yield jobs, random.randint(1, 2 * len(jobs) + 6)


@pytest.mark.parametrize("seed", range(10))
def test_afs_l_is_the_literal_scan(seed: int) -> None:
    """VODA-44, 45."""
    for jobs, devices in random_jobs(seed, 200, (1, 7)):
        assert decided(a_snapshot(jobs, devices), "afs-l", "none").allocation == literal_shares(jobs, devices)


@pytest.mark.parametrize("seed", range(6))
def test_afs_l_is_the_literal_scan_with_many_jobs(seed: int) -> None:
    """VODA-44: enough jobs for the vectorised comparison."""
    for jobs, devices in random_jobs(seed, 2, (100, 130)):
        assert decided(a_snapshot(jobs, devices), "afs-l", "none").allocation == literal_shares(jobs, devices)


@pytest.mark.parametrize("sizes", [(1, 7), (100, 130)], ids=["one by one", "all at once"])
@pytest.mark.parametrize("share", [0.3, 1.0], ids=["some", "all"])
def test_afs_l_takes_unknown_lengths_for_longer_than_all_known_ones(sizes: tuple[int, int], share: float) -> None:
    """VODA-45: as if each had the same work left, and more of it than any other."""
    random = Random(3)
    for jobs, devices in random_jobs(5, 60 if sizes[1] < 100 else 3, sizes):
        long = [replace(job, remaining=1e9) if random.random() < share else job for job in jobs]
        unknown = [replace(job, remaining=math.nan) if job.remaining == 1e9 else job for job in long]
        assert decided(a_snapshot(unknown, devices), "afs-l", "none").allocation == literal_shares(long, devices)


@pytest.mark.parametrize("policy", ["afs-l", "srjf", "elastic-srjf"])
def test_a_job_of_unknown_length_does_not_keep_others_from_being_served_shortest_first(policy: str) -> None:
    jobs = [a_job(f"j{n}", (1, 2), submit=n, remaining=left) for n, left in enumerate((1000, 10, math.nan))]
    assert decided(a_snapshot(jobs, 1), policy, "none").allocation == {"j0": 0, "j1": 1, "j2": 0}


def test_with_fewer_devices_than_jobs_the_shortest_get_them() -> None:
    """VODA-45, whatever the curves."""
    random = Random(1)
    for _ in range(50):
        jobs = [
            a_job(f"j{number}", (1, 4), remaining=float(length), speedup=(1, 1.5, 1.8))
            for number, length in enumerate(random.sample(range(1, 100), 6))
        ]
        shortest = sorted(jobs, key=lambda job: job.remaining)[:3]
        allocation = decided(a_snapshot(jobs, 3), "afs-l", "none").allocation
        assert {name for name, workers in allocation.items() if workers} == {job.name for job in shortest}
