"""Voda's allocation algorithms as in its code, for the model of Voda that the study compares with.

Each is a function from jobs and devices to devices per job. None sees the current allocation, and where the original
iterates over a map, ties are random here too. Defects that shape its published results are kept: AFS-L reads the longer
job's length at the shorter one's allocation. Sterna's own policies of the same names are in `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

_COMPACT_ABOVE = 4
"""ElasticTiresias shrinks jobs of the second queue if more jobs than this are pending; as set for the experiment."""
_INFEASIBLE = -10_000.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job as the allocator sees it. Candidates are in the order of submission."""

    minimum: int
    maximum: int
    request: int
    speed: Sequence[float]
    """Speed-up at 0, 1, 2 .. devices."""
    remaining_seconds: float
    """Remaining work at one device, by completed epochs."""
    priority: int
    """Queue of Tiresias: 0 or 1."""


Allocate = Callable[[Sequence[Candidate], int, Random], list[int]]


def elastic_fifo(jobs: Sequence[Candidate], devices: int, _: Random) -> list[int]:
    """Give the minimum in order, then one more device to each in rounds."""
    given = [0] * len(jobs)
    for row, job in enumerate(jobs):
        if job.minimum <= devices:
            given[row] = job.minimum
            devices -= job.minimum
    while devices:
        below = [row for row, job in enumerate(jobs) if 0 < given[row] < job.maximum][:devices]
        if not below:
            break
        for row in below:
            given[row] += 1
        devices -= len(below)
    return given


def ffdl(jobs: Sequence[Candidate], devices: int, _: Random) -> list[int]:
    """Maximize the sum of speed-ups over the first jobs, one device each at least."""
    kept = jobs[:devices]
    best = [0.0] * (devices + 1)
    choices: list[list[int]] = []
    for job in kept:
        row, choice = [_INFEASIBLE] * (devices + 1), [0] * (devices + 1)
        for total in range(1, devices + 1):
            for count in range(1, min(job.maximum, total) + 1):
                value = job.speed[count] + best[total - count]
                if value > row[total]:
                    row[total], choice[total] = value, count
        best = row
        choices.append(choice)
    given, left = [0] * len(jobs), devices
    for row_number in range(len(kept) - 1, -1, -1):
        given[row_number] = choices[row_number][left]
        left -= given[row_number]
    return given


def afs_l(jobs: Sequence[Candidate], devices: int, _: Random) -> list[int]:
    """Give one device at a time to the winner of a scan in order, each candidate against the next."""
    given = [0] * len(jobs)
    for _device in range(devices):
        winner: int | None = None
        for row, job in enumerate(jobs):
            if given[row] < job.maximum:
                winner = row if winner is None else _choose_winner(jobs, given, winner, row)
        if winner is None:
            break
        given[winner] += 1
    return given


def _choose_winner(jobs: Sequence[Candidate], given: Sequence[int], first: int, second: int) -> int:
    a, b = jobs[first], jobs[second]
    if not given[first] and not given[second]:
        return second if a.remaining_seconds >= b.remaining_seconds else first
    held = given[first]
    if _length(a, held) >= _length(b, held):
        first, second = second, first
        a, b = b, a
    now, then = b.speed[given[second]], b.speed[given[second] + 1]
    gain = (then - now) / then
    now, then = a.speed[given[first]], a.speed[given[first] + 1]
    loss = (then - now) / now if now else float("inf")
    return second if gain > loss else first


def _length(job: Candidate, devices: int) -> float:
    return job.remaining_seconds / job.speed[devices] if devices else float("inf")


def elastic_tiresias(jobs: Sequence[Candidate], devices: int, random: Random) -> list[int]:
    """Give each job that fits its request, queue by queue, then each device where it adds most."""
    given = [0] * len(jobs)
    for row in sorted(range(len(jobs)), key=lambda row: jobs[row].priority):
        if jobs[row].request <= devices:
            given[row] = jobs[row].request
            devices -= given[row]
    if given.count(0) > _COMPACT_ABOVE:
        for row, job in enumerate(jobs):
            if given[row] and job.priority:
                devices += given[row] - job.minimum
                given[row] = job.minimum
    rows = [row for row, job in enumerate(jobs) if given[row] < job.maximum and job.minimum <= devices]
    random.shuffle(rows)
    while devices and rows:
        row = max(rows, key=lambda row: (_gain(jobs[row], given[row]), -jobs[row].priority))
        step = 1 if given[row] else jobs[row].minimum
        if _gain(jobs[row], given[row]) <= 0:
            break
        fits = step <= devices
        if fits:
            given[row] += step
            devices -= step
        if not fits or given[row] >= jobs[row].maximum:
            rows.remove(row)
    return given


def _gain(job: Candidate, devices: int) -> float:
    if not devices:
        return job.speed[job.minimum] / job.minimum
    return job.speed[devices + 1] - job.speed[devices]


ALGORITHMS: dict[str, Allocate] = {
    "ElasticFIFO": elastic_fifo,
    "ElasticTiresias": elastic_tiresias,
    "FfDLOptimizer": ffdl,
    "AFS-L": afs_l,
}
"""Algorithms by Voda's names."""
