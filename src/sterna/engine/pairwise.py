"""AFS-L's contest: who gets the next device, decided between pairs.

Of two jobs the one that would end sooner wins, unless the later one gains relatively more: with S the speed-up and w
the workers of each, the longer job l wins iff (S(w+1) - S(w)) / S(w+1) of l exceeds (S(w+1) - S(w)) / S(w) of s. The
rule is not transitive, so the order of asking matters: the candidate meets the others in submit order, and an earlier
job wins a tie. A job without workers enters with its whole minimum and counts as longer than any that runs.

What makes it fast: after a device has been given, only the winner has changed, so everyone before it in the order
still met the same opponents. The chain of candidates up to the winner is kept, and the scan goes on from there.
"""

from __future__ import annotations

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

_OUT = -1.0
"""Gains of a job that can get no more: it beats nobody."""

_FEW = 96
"""Up to so many opponents are met one by one, more of them all at once."""


class Contest:
    """Jobs in order, their present gains and lengths. Lives for one allocation."""

    def __init__(self, snapshot: Snapshot, rows: Ints) -> None:
        jobs = snapshot.jobs
        self._minimum = jobs.minimum[rows].tolist()
        self._maximum = jobs.maximum[rows]
        self._remaining = jobs.remaining[rows]
        self._need = snapshot.need[rows].tolist()
        self._base = snapshot.base[rows].tolist() if snapshot.has_base else [0] * len(rows)
        self._curve = jobs.curve[rows]
        self._speed = snapshot.curves.table(int(self._maximum.max()) + 1)
        self._workers = [0] * len(rows)
        self._gain = np.ones(len(rows))
        """Relative to the speed it would have: what a longer job has to offer."""
        self._loss = np.full(len(rows), np.inf)
        """Relative to the speed it has: what a shorter job would forgo."""
        self._length = _waiting_lengths(self._remaining, jobs.priority[rows], self._speed)

    def settle(self, units: int) -> Ints:
        """Workers of each job when nothing more can be given."""
        useful = self._useful_maximum()
        need, base = np.array(self._need), np.array(self._base)
        if int((useful * need + base).sum()) <= units:
            return useful
        self._most = useful.tolist()
        self._lists()
        scan = self._scan_few if len(self._need) <= _FEW else self._scan_many
        chain = [0]
        scan(chain, 0)
        while True:
            winner = chain.pop()
            if self._gains[winner] == _OUT:
                return np.array(self._workers, dtype=np.int64)
            units -= self._give(winner, units)
            if not chain or self._beats(winner, chain[-1]):
                chain.append(winner)
            scan(chain, winner)

    def _useful_maximum(self) -> Ints:
        """The most workers that still add speed, at least the minimum."""
        rising = np.diff(self._speed, axis=1) > 0
        last: Ints = (rising * np.arange(1, rising.shape[1] + 1)).max(axis=1)
        useful: Ints = np.maximum(np.minimum(self._maximum, last[self._curve]), self._minimum)
        return useful

    def _lists(self) -> None:
        self._gains: list[float] = self._gain.tolist()
        self._losses: list[float] = self._loss.tolist()
        self._lengths: list[float] = self._length.tolist()
        self._speeds: list[list[float]] = self._speed.tolist()
        self._curves: list[int] = self._curve.tolist()
        self._work: list[float] = self._remaining.tolist()

    def _give(self, job: int, units: int) -> int:
        """One more worker, or the whole minimum; what it took. A job that cannot have it is out."""
        workers = self._workers[job]
        step = 1 if workers else self._minimum[job]
        cost = step * self._need[job] + (0 if workers else self._base[job])
        if cost > units:
            self._set(job, _OUT, _OUT, np.inf)
            return 0
        workers += step
        self._workers[job] = workers
        speed = self._speeds[self._curves[job]]
        length = self._work[job] / speed[workers]
        if workers >= self._most[job]:
            self._set(job, _OUT, _OUT, length)
        else:
            more = speed[workers + 1] - speed[workers]
            self._set(job, more / speed[workers + 1], more / speed[workers], length)
        return int(cost)

    def _set(self, job: int, gain: float, loss: float, length: float) -> None:
        self._gain[job] = self._gains[job] = gain
        self._loss[job] = self._losses[job] = loss
        self._length[job] = self._lengths[job] = length

    def _beats(self, later: int, holder: int) -> bool:
        if self._gains[later] > self._losses[holder]:
            return True
        return self._lengths[later] < self._lengths[holder] and self._losses[later] >= self._gains[holder]

    def _scan_few(self, chain: list[int], after: int) -> None:
        """Let the last of the chain meet everyone after `after`; whoever beats it takes its place at the end of the
        chain."""
        gains, losses, lengths = self._gains, self._losses, self._lengths
        holder = chain[-1]
        gain, loss, length = gains[holder], losses[holder], lengths[holder]
        for job in range(after + 1, len(gains)):
            if gains[job] > loss or (losses[job] >= gain and lengths[job] < length):
                chain.append(job)
                gain, loss, length = gains[job], losses[job], lengths[job]

    def _scan_many(self, chain: list[int], after: int) -> None:
        """The same, for so many opponents that one by one would take long."""
        while True:
            holder = chain[-1]
            start = after + 1
            beats = self._length[start:] < self._lengths[holder]
            beats &= self._loss[start:] >= self._gains[holder]
            beats |= self._gain[start:] > self._losses[holder]
            if not len(beats):
                return
            first = int(beats.argmax())
            if not beats[first]:
                return
            after = start + first
            chain.append(after)


def _waiting_lengths(remaining: Floats, priority: Ints, speed: Floats) -> Floats:
    """Lengths of jobs without workers: above all others, among them by priority, then by remaining work."""
    order = np.lexsort((remaining, priority))
    rises = np.diff(remaining[order], prepend=np.nan) != 0
    rises |= np.diff(priority[order], prepend=-1) != 0
    rank = np.empty(len(order))
    rank[order] = rises.cumsum()
    return float(remaining.max()) / float(speed[:, 1].min()) + 1.0 + rank
