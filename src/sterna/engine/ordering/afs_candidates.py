"""Rivals: for a candidate in AFS-L's contest, the next job in the order that beats it.

Two searches with the same answer, after the same rule: `FewRivals` asks one opponent after the other, `ManyRivals`
all at once. Jobs are numbered from the last to the first: whoever comes after a job has a lower number than it.

A crowd is held in integers with one bit for each job, so "who gains at least that much and is shorter than this" is
one operation, and the first of them is the highest bit. Jobs stand on rungs by what they gain, and in brackets by how
long they last. Rungs and brackets are coarse: they may admit too many, never too few, and each rival found is put to
the rule itself before it counts. That keeps the answer exact. What keeps it fast is that a job which gets a worker
only steps down and becomes shorter: its bit changes on the few rungs and brackets that it passes, nobody else's does.

Who gets workers, and how many, is not decided here.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats

NOBODY = -1
"""Stands before the first job and loses to whoever can use a worker. As an index it is the last entry of a list."""

_OUT = -1.0
"""Gain and loss of a job that can get no more: it beats nobody."""

_RUNGS = 64
_BRACKETS = 32


class Field(NamedTuple):
    """The jobs that compete, from the last to the first."""

    speed: Floats
    """By curve and workers, up to one more than anybody can use."""
    curve: Ints
    minimum: Ints
    remaining: Floats
    waiting_length: Floats
    """What counts as its length while a job has no workers: longer than any that runs."""


class LinearCandidates:
    """Asks one opponent after the other: quickest as long as they are few."""

    def __init__(self, field: Field) -> None:
        count = len(field.curve)
        speeds = field.speed.tolist()
        self._speed: list[list[float]] = [speeds[code] for code in field.curve.tolist()]
        self._remaining: list[float] = field.remaining.tolist()
        self.gains = [*[1.0] * count, np.inf]
        """Relative to the speed it would have: what a longer job has to offer."""
        self.losses = [*[np.inf] * count, _OUT]
        """Relative to the speed it has: what a shorter job would forgo."""
        self.lengths: list[float] = [*field.waiting_length.tolist(), np.inf]

    def scan(self, chain: list[int], after: int) -> None:
        """Let the last of the chain meet everyone after `after`; whoever beats it takes its place at the end of the
        chain."""
        gains, losses, lengths = self.gains, self.losses, self.lengths
        holder = chain[-1]
        gain, loss, length = gains[holder], losses[holder], lengths[holder]
        for job in range(after - 1, -1, -1):
            if gains[job] > loss or (losses[job] >= gain and lengths[job] < length):
                chain.append(job)
                gain, loss, length = gains[job], losses[job], lengths[job]

    def advance(self, job: int, workers: int) -> None:
        """The job has so many workers now, and could use more."""
        speed = self._speed[job]
        now, then = speed[workers], speed[workers + 1]
        self.gains[job] = (then - now) / then
        self.losses[job] = (then - now) / now
        self.lengths[job] = self._remaining[job] / now

    def leave(self, job: int) -> None:
        """The job gets no more."""
        self.gains[job] = self.losses[job] = _OUT


class IndexedCandidates(LinearCandidates):
    """Asks all opponents at once.

    A job that waits stands on the rung and in the bracket where it will start, so that its start costs no more than any
    other step. Until then it is looked for by rules of its own, see `_with_waiting`.
    """

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        count = len(field.curve)
        self._bits = [1 << job for job in range(count + 1)]
        self._live = self._waiting = self._bits[count] - 1
        self._climb(field)
        length = field.remaining / field.speed[field.curve, field.minimum]
        bounds = np.sort(length)[:: -(-count // _BRACKETS)][1:]
        bracket = bounds.searchsorted(length, side="right")
        self._bounds: list[float] = bounds.tolist()
        self._bracket: list[int] = [*bracket.tolist(), 0]
        self._shorter = _masks(bracket <= np.arange(len(bounds) + 1)[:, None])
        """By bracket: who is in it or in a shorter one."""
        turn = field.waiting_length.argsort().argsort() * _BRACKETS // count
        self._turn: list[int] = turn.tolist()
        self._sooner = _masks(turn <= np.arange(_BRACKETS)[:, None])
        """The same for jobs that wait, which have brackets of their own."""

    def _climb(self, field: Field) -> None:
        ladder = _make_ladder(field.speed)
        self._steps = [ladder.steps[code] for code in field.curve.tolist()]
        self._beside_waiting = ladder.beside_waiting
        rung = ladder.rung[field.curve, field.minimum]
        self._rung: list[int] = rung.tolist()
        self._at_least = _masks(rung >= np.arange(ladder.height)[:, None])
        """By rung: who stands on it or higher."""
        self._above, self._beside = [0] * len(self._bits), [0] * len(self._bits)

    def scan(self, chain: list[int], after: int) -> None:
        at_least, shorter, bits = self._at_least, self._shorter, self._bits
        above, beside, bracket = self._above, self._beside, self._bracket
        gains, losses, lengths = self.gains, self.losses, self.lengths
        holder = chain[-1]
        while True:
            rivals = at_least[beside[holder]] & shorter[bracket[holder]] | at_least[above[holder]]
            if self._waiting:
                rivals = self._with_waiting(holder, rivals)
            rivals &= bits[after] - 1 & self._live
            if not rivals:
                return
            gain, loss, length = gains[holder], losses[holder], lengths[holder]
            while rivals:
                job = rivals.bit_length() - 1
                if gains[job] > loss or (losses[job] >= gain and lengths[job] < length):
                    break
                rivals ^= bits[job]
            else:
                return
            chain.append(job)
            holder = after = job

    def _with_waiting(self, holder: int, rivals: int) -> int:
        """One that waits loses to a shorter one that waits and to those that run and forgo as much as it gains, which
        is 1. One that runs loses to all that wait or to none, because they are longer."""
        waiting = self._waiting
        if waiting & self._bits[holder]:
            return self._sooner[self._turn[holder]] & waiting | self._at_least[self._beside_waiting] & ~waiting
        return rivals | waiting if self.losses[holder] < 1.0 else rivals & ~waiting

    def advance(self, job: int, workers: int) -> None:
        bit = self._bits[job]
        if self._waiting & bit:
            self._waiting ^= bit
        speed, self.gains[job], self.losses[job], rung, self._above[job], self._beside[job] = self._steps[job][workers]
        at_least = self._at_least
        for passed in range(rung + 1, self._rung[job] + 1):
            at_least[passed] ^= bit
        self._rung[job] = rung
        self.lengths[job] = length = self._remaining[job] / speed
        bracket = bisect_right(self._bounds, length)
        for passed in range(bracket, self._bracket[job]):
            self._shorter[passed] |= bit
        self._bracket[job] = bracket

    def leave(self, job: int) -> None:
        self.gains[job] = self.losses[job] = _OUT
        bit = self._bits[job]
        self._live ^= bit
        if self._waiting & bit:
            self._waiting ^= bit


class _Ladder(NamedTuple):
    """The rungs of all gains that occur."""

    steps: list[list[tuple[float, float, float, int, int, int]]]
    """By curve and workers: speed, gain, loss, rung; the rung at or above which stands whoever gains more than this
    one forgoes; and that of whoever forgoes as much as this one gains."""
    rung: Ints
    """By curve and workers."""
    beside_waiting: int
    """The rung at or above which stands whoever forgoes as much as a job that waits gains."""
    height: int


def _make_ladder(speed: Floats) -> _Ladder:
    now, then = speed[:, :-1].copy(), speed[:, 1:]
    now[:, 0] = then[:, 0]  # without workers there is no loss to speak of; nobody asks for that column
    gain, loss = (then - now) / then, (then - now) / now
    edges = np.unique(gain)
    edges = edges[:: -(-len(edges) // _RUNGS)]
    rung = edges.searchsorted(gain, side="left")
    largest_loss = np.full(len(edges) + 1, -np.inf)
    np.maximum.at(largest_loss, rung, loss)
    largest_loss = np.maximum.accumulate(largest_loss)
    # Curves are concave but for rounding: where a gain would rise again, the job stands there from the beginning.
    rung = np.maximum.accumulate(rung[:, ::-1], axis=1)[:, ::-1]
    above = edges.searchsorted(loss, side="right")
    beside = largest_loss.searchsorted(gain, side="left")
    columns = [table.tolist() for table in (now, gain, loss, rung, above, beside)]
    steps = [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)]
    return _Ladder(steps, rung, int(largest_loss.searchsorted(1.0)), len(edges) + 2)


def _masks(members: Bools) -> list[int]:
    """One integer for each row, with the bits of its members."""
    packed = np.packbits(members, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
