"""A reference simulator with lists and loops, without columns or a heap. It shares no code with the tested one.

It decides for all jobs at every arrival and every end. Devices are counted, not placed; changes cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_DONE = 1e-9
"""Work so small is none: what rounding leaves when several jobs end at once."""


@dataclass
class BruteJob:
    name: str
    submit: float
    minimum: int
    maximum: int
    work: float
    speeds: Sequence[float]
    """At 0, 1, 2 .. workers, up to the maximum."""
    workers: int = 0
    finish: float = float("inf")


Rule = Callable[[list[BruteJob], int], dict[str, int]]


def finish_times(jobs: Sequence[BruteJob], devices: int, rule: Rule) -> dict[str, float]:
    """Return the completion time of each job."""
    ahead = sorted(jobs, key=lambda job: (job.submit, job.name))
    active: list[BruteJob] = []
    now = 0.0
    while ahead or active:
        while ahead and ahead[0].submit <= now:
            active.append(ahead.pop(0))
        shares = rule(active, devices)
        for job in active:
            job.workers = shares.get(job.name, 0)
        ends = [now + job.work / job.speeds[job.workers] for job in active if job.workers]
        then = min([*ends, *(job.submit for job in ahead[:1])])
        for job in active:
            if job.workers:
                job.work -= (then - now) * job.speeds[job.workers]
        now = then
        for job in active:
            if job.work <= _DONE * max(1.0, now):
                job.finish = now
        active = [job for job in active if job.finish == float("inf")]
    return {job.name: job.finish for job in jobs}


def minimum_in(order: list[BruteJob], devices: int) -> dict[str, int]:
    shares: dict[str, int] = {}
    for job in order:
        if job.minimum <= devices:
            shares[job.name] = job.minimum
            devices -= job.minimum
    return shares


def dealt_in(order: list[BruteJob], devices: int) -> dict[str, int]:
    """The minimum, then one more each and round."""
    shares = minimum_in(order, devices)
    left = devices - sum(shares.values())
    hungry = True
    while left and hungry:
        hungry = False
        for job in order:
            if left and 0 < shares.get(job.name, 0) < job.maximum:
                shares[job.name] += 1
                left -= 1
                hungry = True
    return shares


def shortest(jobs: list[BruteJob]) -> list[BruteJob]:
    return sorted(jobs, key=lambda job: job.work)


def fifo(jobs: list[BruteJob], devices: int) -> dict[str, int]:
    return minimum_in(jobs, devices)


def srjf(jobs: list[BruteJob], devices: int) -> dict[str, int]:
    return minimum_in(shortest(jobs), devices)


def elastic_fifo(jobs: list[BruteJob], devices: int) -> dict[str, int]:
    return dealt_in(jobs, devices)


def elastic_srjf(jobs: list[BruteJob], devices: int) -> dict[str, int]:
    return dealt_in(shortest(jobs), devices)


def ffdl(jobs: list[BruteJob], devices: int) -> dict[str, int]:
    """The best total by a table over jobs and devices; among equals the earlier jobs get more."""
    admitted = [job for job in jobs if job.name in minimum_in(jobs, devices)]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (devices + 1)
    for at, job in enumerate(admitted):
        below = sum(other.minimum for other in admitted[: at + 1])
        table: list[tuple[float, tuple[int, ...]]] = [(float("-inf"), ())] * (devices + 1)
        for room in range(below, devices + 1):
            for size in range(job.minimum, min(job.maximum, room) + 1):
                total, sizes = best[room - size]
                if total + job.speeds[size] > table[room][0] + _DONE:
                    table[room] = (total + job.speeds[size], (*sizes, size))
        best = table
    return dict(zip([job.name for job in admitted], best[devices][1], strict=True))


RULES: dict[str, Rule] = {
    "fifo": fifo,
    "srjf": srjf,
    "elastic-fifo": elastic_fifo,
    "elastic-srjf": elastic_srjf,
    "ffdl": ffdl,
}
