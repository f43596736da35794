"""Contest of AFS-L: pairwise comparisons decide which job gets the next device.

Of two jobs the one that would end sooner wins, unless the other gains relatively more: with S the speed-up and w the
workers of each, the longer job l beats the shorter job s iff (S(w+1) - S(w)) / S(w+1) of l exceeds (S(w+1) - S(w)) /
S(w) of s. The rule is not transitive, so the order of comparisons matters: the candidate is compared with the others in
submit order, and an earlier job wins a tie. A job without workers starts with its minimum and counts as longer than any
running job. Jobs of unknown length count as equally long, and as longer than all jobs of known length.

A device changes only the winner, so the comparisons of all jobs before it in the order stay valid: the chain of
candidates up to the winner is kept, and the scan continues from there. `afs_candidates` finds the next job that beats a
candidate.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.ordering.afs_candidates import NO_CANDIDATE, Contestants, IndexedCandidates, LinearCandidates
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

_MAX_LINEAR = 96
"""Largest number of jobs for `LinearCandidates`."""


class Contest:
    """Contest between the jobs of `rows`, stored from the last to the first. Used for one allocation."""

    def __init__(self, snapshot: Snapshot, rows: Ints) -> None:
        jobs, rows = snapshot.jobs, rows[::-1]
        self._minimum = jobs.minimum[rows]
        self._priority = jobs.priority[rows]
        self._need = snapshot.need[rows]
        self._base = snapshot.base[rows] if snapshot.has_base else np.zeros(len(rows), dtype=np.int64)
        maximum = jobs.maximum[rows]
        codes, self._curve = np.unique(jobs.curve[rows], return_inverse=True)
        self._speed = snapshot.curves.table(int(maximum.max()) + 1)[codes]
        self._most = self._useful_workers(maximum)
        self._remaining = _replace_unknown(jobs.remaining[rows], self._speed)

    def _useful_workers(self, maximum: Ints) -> Ints:
        """Return the largest number of workers that adds speed, at least the minimum."""
        rising = np.diff(self._speed, axis=1) > 0
        last: Ints = (rising * np.arange(1, rising.shape[1] + 1)).max(axis=1)
        useful: Ints = np.maximum(np.minimum(maximum, last[self._curve]), self._minimum)
        return useful

    def allocate(self, units: int) -> Ints:
        """Return the workers of each job when no further worker fits into `units`."""
        if int((self._most * self._need + self._base).sum()) <= units:
            return self._most[::-1]
        return np.array(self._run_rounds(units)[::-1], dtype=np.int64)

    def _run_rounds(self, units: int) -> list[int]:
        candidates = self._make_candidates()
        gains, losses, lengths = candidates.gains, candidates.losses, candidates.lengths
        minimum, most, need = self._minimum.tolist(), self._most.tolist(), self._need.tolist()
        entry = (self._minimum * self._need + self._base).tolist()
        held = [0] * len(most)
        chain, winner = [NO_CANDIDATE], len(most)
        while True:
            candidates.scan(chain, winner)
            winner = chain.pop()
            if winner == NO_CANDIDATE:
                return held
            workers = held[winner]
            cost = need[winner] if workers else entry[winner]
            if cost > units:
                candidates.remove(winner)
                continue
            units -= cost
            held[winner] = workers = workers + 1 if workers else minimum[winner]
            if workers >= most[winner]:
                candidates.remove(winner)
                continue
            candidates.advance(winner, workers)
            last = chain[-1]
            if gains[winner] > losses[last] or (losses[winner] >= gains[last] and lengths[winner] < lengths[last]):
                chain.append(winner)

    def _make_candidates(self) -> LinearCandidates:
        speed = self._speed[:, : int(self._most.max()) + 2]
        waiting_length = _waiting_lengths(self._remaining, self._priority, speed)
        contestants = Contestants(speed, self._curve, self._minimum, self._remaining, waiting_length)
        return LinearCandidates(contestants) if len(self._curve) <= _MAX_LINEAR else IndexedCandidates(contestants)


def _replace_unknown(remaining: Floats, speed: Floats) -> Floats:
    """Return the remaining work with a finite value where it is unknown: it takes longer at the highest speed than any
    known job at the lowest."""
    known = np.isfinite(remaining)
    if known.all():
        return remaining
    longest = remaining.max(where=known, initial=0.0) / speed[:, 1].min()
    return np.where(known, remaining, 2.0 * (longest + 1.0) * speed.max())


def _waiting_lengths(remaining: Floats, priority: Ints, speed: Floats) -> Floats:
    """Return lengths for jobs without workers: above all others, ordered by priority, then by remaining work."""
    order = np.lexsort((remaining, -priority))
    rises = np.diff(remaining[order], prepend=-np.inf) != 0
    rises[1:] |= np.diff(priority[order]) != 0
    rank = np.empty(len(order))
    rank[order] = rises.cumsum()
    longest = float(remaining.max()) / float(speed[:, 1].min())
    return (longest + 1.0) * (1.0 + rank)  # a product, because a sum would round the rank away next to a very long job
