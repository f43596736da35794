"""AFS-L's contest: who gets the next device, decided between pairs.

Of two jobs the one that would end sooner wins, unless the later one gains relatively more: with S the speed-up and w
the workers of each, the longer job l wins iff (S(w+1) - S(w)) / S(w+1) of l exceeds (S(w+1) - S(w)) / S(w) of s. The
rule is not transitive, so the order of asking matters: the candidate meets the others in submit order, and an earlier
job wins a tie. A job without workers enters with its whole minimum and counts as longer than any that runs. Jobs of
unknown length count as equally long, and as longer than all whose length is known.

What makes it fast: after a device has been given, only the winner has changed, so everyone before it in the order
still met the same opponents. The chain of candidates up to the winner is kept, and the scan goes on from there. How
the next one that beats a candidate is found is told in `rivals`.
"""

from __future__ import annotations

import numpy as np

from sterna.engine.ordering.afs_candidates import NOBODY, Field, IndexedCandidates, LinearCandidates
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

_FEW = 96
"""Up to so many opponents are met one by one, more of them all at once."""


class Contest:
    """Jobs from the last to the first, as `rivals` numbers them. Lives for one allocation."""

    def __init__(self, snapshot: Snapshot, rows: Ints) -> None:
        jobs, rows = snapshot.jobs, rows[::-1]
        self._minimum = jobs.minimum[rows]
        self._priority = jobs.priority[rows]
        self._need = snapshot.need[rows]
        self._base = snapshot.base[rows] if snapshot.has_base else np.zeros(len(rows), dtype=np.int64)
        maximum = jobs.maximum[rows]
        codes, self._curve = np.unique(jobs.curve[rows], return_inverse=True)
        self._speed = snapshot.curves.table(int(maximum.max()) + 1)[codes]
        self._most = self._useful(maximum)
        self._remaining = _with_unknown(jobs.remaining[rows], self._speed)

    def _useful(self, maximum: Ints) -> Ints:
        """The most workers that still add speed, at least the minimum."""
        rising = np.diff(self._speed, axis=1) > 0
        last: Ints = (rising * np.arange(1, rising.shape[1] + 1)).max(axis=1)
        useful: Ints = np.maximum(np.minimum(maximum, last[self._curve]), self._minimum)
        return useful

    def settle(self, units: int) -> Ints:
        """Workers of each job when nothing more can be given."""
        if int((self._most * self._need + self._base).sum()) <= units:
            return self._most[::-1]
        return np.array(self._play(units)[::-1], dtype=np.int64)

    def _play(self, units: int) -> list[int]:
        rivals = self._rivals()
        gains, losses, lengths = rivals.gains, rivals.losses, rivals.lengths
        minimum, most, need = self._minimum.tolist(), self._most.tolist(), self._need.tolist()
        entry = (self._minimum * self._need + self._base).tolist()
        held = [0] * len(most)
        chain, winner = [NOBODY], len(most)
        while True:
            rivals.scan(chain, winner)
            winner = chain.pop()
            if winner == NOBODY:
                return held
            workers = held[winner]
            cost = need[winner] if workers else entry[winner]
            if cost > units:
                rivals.leave(winner)
                continue
            units -= cost
            held[winner] = workers = workers + 1 if workers else minimum[winner]
            if workers >= most[winner]:
                rivals.leave(winner)
                continue
            rivals.advance(winner, workers)
            last = chain[-1]
            if gains[winner] > losses[last] or (losses[winner] >= gains[last] and lengths[winner] < lengths[last]):
                chain.append(winner)

    def _rivals(self) -> LinearCandidates:
        speed = self._speed[:, : int(self._most.max()) + 2]
        waiting_length = _waiting_lengths(self._remaining, self._priority, speed)
        field = Field(speed, self._curve, self._minimum, self._remaining, waiting_length)
        return LinearCandidates(field) if len(self._curve) <= _FEW else IndexedCandidates(field)


def _with_unknown(remaining: Floats, speed: Floats) -> Floats:
    """Work left, where it is unknown so much that it takes longer at the best speed than any other at the worst: from
    here on all are numbers that can be compared."""
    known = np.isfinite(remaining)
    if known.all():
        return remaining
    longest = remaining.max(where=known, initial=0.0) / speed[:, 1].min()
    return np.where(known, remaining, 2.0 * (longest + 1.0) * speed.max())


def _waiting_lengths(remaining: Floats, priority: Ints, speed: Floats) -> Floats:
    """Lengths of jobs without workers: above all others, among them by priority, then by remaining work."""
    order = np.lexsort((remaining, -priority))
    rises = np.diff(remaining[order], prepend=-np.inf) != 0
    rises[1:] |= np.diff(priority[order]) != 0
    rank = np.empty(len(order))
    rank[order] = rises.cumsum()
    longest = float(remaining.max()) / float(speed[:, 1].min())
    return (longest + 1.0) * (1.0 + rank)  # a product, because a sum would lose the rank beside a very long job
