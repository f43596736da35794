"""Search for the next job in the order that beats a candidate of the AFS-L contest.

Two classes return the same answer: `LinearCandidates` compares one job after the other, `IndexedCandidates` all jobs at
once. Jobs are numbered from the last to the first, so a later job has a lower number.

`IndexedCandidates` stores sets of jobs as integers with one bit for each job: "gains at least this much and is not
longer than that" is one operation, and the first such job is the highest bit. Gains and lengths are grouped into
buckets, so a set may contain jobs that do not beat the candidate, but it misses none; each job found is compared by the
exact rule. A job that gets a worker gains less and becomes shorter, so only its own bit changes, in the few buckets
between its old and its new one.

`afs_contest` decides which job gets workers.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats

NO_CANDIDATE = -1
"""Sentinel before the first job; loses to every job that can use a worker. As an index it is the last entry."""

_NO_GAIN = -1.0
"""Gain and loss of a job that can get no more workers: it beats no other job."""

_GAIN_BUCKETS = 64
_LENGTH_BUCKETS = 32


class Contestants(NamedTuple):
    """Columns of the competing jobs, from the last to the first."""

    speed: Floats
    """Speed by curve and workers, up to one worker more than any job can use."""
    curve: Ints
    minimum: Ints
    remaining: Floats
    waiting_length: Floats
    """Length of a job while it has no workers: longer than any running job."""


class LinearCandidates:
    """Compares one job after the other; fastest for few jobs."""

    def __init__(self, contestants: Contestants) -> None:
        count = len(contestants.curve)
        speeds = contestants.speed.tolist()
        self._speed: list[list[float]] = [speeds[code] for code in contestants.curve.tolist()]
        self._remaining: list[float] = contestants.remaining.tolist()
        self.gains = [*[1.0] * count, np.inf]
        """Speed that one more worker adds, relative to the speed with it; compared if the job is the longer one."""
        self.losses = [*[np.inf] * count, _NO_GAIN]
        """Speed that one more worker adds, relative to the speed without it; compared if the job is the shorter one."""
        self.lengths: list[float] = [*contestants.waiting_length.tolist(), np.inf]

    def scan(self, chain: list[int], after: int) -> None:
        """Compare the last job of the chain with the jobs later than `after`; append each job that beats the last."""
        gains, losses, lengths = self.gains, self.losses, self.lengths
        candidate = chain[-1]
        gain, loss, length = gains[candidate], losses[candidate], lengths[candidate]
        for job in range(after - 1, -1, -1):
            if gains[job] > loss or (losses[job] >= gain and lengths[job] < length):
                chain.append(job)
                gain, loss, length = gains[job], losses[job], lengths[job]

    def advance(self, job: int, workers: int) -> None:
        """Update a job that has `workers` workers and can use more."""
        speed = self._speed[job]
        now, then = speed[workers], speed[workers + 1]
        self.gains[job] = (then - now) / then
        self.losses[job] = (then - now) / now
        self.lengths[job] = self._remaining[job] / now

    def remove(self, job: int) -> None:
        """Exclude a job from further comparisons."""
        self.gains[job] = self.losses[job] = _NO_GAIN


class IndexedCandidates(LinearCandidates):
    """Compares all jobs at once.

    A waiting job is in the gain and length buckets of its minimum, so that its start costs no more than any other
    step. `_include_waiting` applies the rules for jobs without workers.
    """

    def __init__(self, contestants: Contestants) -> None:
        super().__init__(contestants)
        count = len(contestants.curve)
        self._bits = [1 << job for job in range(count + 1)]
        self._active = self._waiting = self._bits[count] - 1
        self._index_gains(contestants)
        length = contestants.remaining / contestants.speed[contestants.curve, contestants.minimum]
        bounds = np.sort(length)[:: -(-count // _LENGTH_BUCKETS)][1:]
        length_bucket = bounds.searchsorted(length, side="right")
        self._bounds: list[float] = bounds.tolist()
        self._length_bucket: list[int] = [*length_bucket.tolist(), 0]
        self._no_longer = _masks(length_bucket <= np.arange(len(bounds) + 1)[:, None])
        """By length bucket: the jobs of this bucket and of shorter ones."""
        waiting_bucket = contestants.waiting_length.argsort().argsort() * _LENGTH_BUCKETS // count
        self._waiting_bucket: list[int] = waiting_bucket.tolist()
        self._waiting_no_longer = _masks(waiting_bucket <= np.arange(_LENGTH_BUCKETS)[:, None])
        """By waiting bucket: waiting jobs of this bucket and of shorter ones."""

    def _index_gains(self, contestants: Contestants) -> None:
        index = _build_gain_index(contestants.speed)
        self._steps = [index.steps[code] for code in contestants.curve.tolist()]
        self._matches_waiting_from = index.matches_waiting_from
        gain_bucket = index.gain_bucket[contestants.curve, contestants.minimum]
        self._gain_bucket: list[int] = gain_bucket.tolist()
        self._gains_at_least = _masks(gain_bucket >= np.arange(index.bucket_count)[:, None])
        """By gain bucket: the jobs of this bucket and of higher ones."""
        self._outgains_from, self._matches_from = [0] * len(self._bits), [0] * len(self._bits)

    def scan(self, chain: list[int], after: int) -> None:
        gains_at_least, no_longer, bits = self._gains_at_least, self._no_longer, self._bits
        outgains_from, matches_from, length_bucket = self._outgains_from, self._matches_from, self._length_bucket
        gains, losses, lengths = self.gains, self.losses, self.lengths
        candidate = chain[-1]
        while True:
            challengers = (
                gains_at_least[matches_from[candidate]] & no_longer[length_bucket[candidate]]
                | gains_at_least[outgains_from[candidate]]
            )
            if self._waiting:
                challengers = self._include_waiting(candidate, challengers)
            challengers &= bits[after] - 1 & self._active
            if not challengers:
                return
            gain, loss, length = gains[candidate], losses[candidate], lengths[candidate]
            while challengers:
                job = challengers.bit_length() - 1
                if gains[job] > loss or (losses[job] >= gain and lengths[job] < length):
                    break
                challengers ^= bits[job]
            else:
                return
            chain.append(job)
            candidate = after = job

    def _include_waiting(self, candidate: int, challengers: int) -> int:
        """Return the challengers under the rules for waiting jobs.

        A waiting job loses to a shorter waiting job, and to a running job whose loss is at least its own gain of 1. A
        running job loses to all waiting jobs or to none, because all of them are longer.
        """
        waiting = self._waiting
        if waiting & self._bits[candidate]:
            return (
                self._waiting_no_longer[self._waiting_bucket[candidate]] & waiting
                | self._gains_at_least[self._matches_waiting_from] & ~waiting
            )
        return challengers | waiting if self.losses[candidate] < 1.0 else challengers & ~waiting

    def advance(self, job: int, workers: int) -> None:
        bit = self._bits[job]
        if self._waiting & bit:
            self._waiting ^= bit
        speed, self.gains[job], self.losses[job], gain_bucket, self._outgains_from[job], self._matches_from[job] = (
            self._steps[job][workers]
        )
        gains_at_least = self._gains_at_least
        for passed in range(gain_bucket + 1, self._gain_bucket[job] + 1):
            gains_at_least[passed] ^= bit
        self._gain_bucket[job] = gain_bucket
        self.lengths[job] = length = self._remaining[job] / speed
        length_bucket = bisect_right(self._bounds, length)
        for passed in range(length_bucket, self._length_bucket[job]):
            self._no_longer[passed] |= bit
        self._length_bucket[job] = length_bucket

    def remove(self, job: int) -> None:
        self.gains[job] = self.losses[job] = _NO_GAIN
        bit = self._bits[job]
        self._active ^= bit
        if self._waiting & bit:
            self._waiting ^= bit


class _GainIndex(NamedTuple):
    """Gain buckets of all curves."""

    steps: list[list[tuple[float, float, float, int, int, int]]]
    """By curve and workers: speed, gain, loss, gain bucket; the lowest bucket of jobs that gain more than this loss;
    the lowest bucket of jobs whose loss may reach this gain."""
    gain_bucket: Ints
    """By curve and workers."""
    matches_waiting_from: int
    """Lowest bucket of jobs whose loss may reach 1, the gain of a waiting job."""
    bucket_count: int


def _build_gain_index(speed: Floats) -> _GainIndex:
    now, then = speed[:, :-1].copy(), speed[:, 1:]
    now[:, 0] = then[:, 0]  # avoids a division by 0; the column without workers is never read
    gain, loss = (then - now) / then, (then - now) / now
    edges = np.unique(gain)
    edges = edges[:: -(-len(edges) // _GAIN_BUCKETS)]
    gain_bucket = edges.searchsorted(gain, side="left")
    largest_loss = np.full(len(edges) + 1, -np.inf)
    np.maximum.at(largest_loss, gain_bucket, loss)
    largest_loss = np.maximum.accumulate(largest_loss)
    # Curves are concave but for rounding: a job whose gain would rise again is in the higher bucket from the start.
    gain_bucket = np.maximum.accumulate(gain_bucket[:, ::-1], axis=1)[:, ::-1]
    outgains_from = edges.searchsorted(loss, side="right")
    matches_from = largest_loss.searchsorted(gain, side="left")
    columns = [table.tolist() for table in (now, gain, loss, gain_bucket, outgains_from, matches_from)]
    steps = [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)]
    return _GainIndex(steps, gain_bucket, int(largest_loss.searchsorted(1.0)), len(edges) + 2)


def _masks(members: Bools) -> list[int]:
    """Return one integer for each row, with the bits of its members."""
    packed = np.packbits(members, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
