"""What jobs of the shared world report, and the growth that follows from it.

A running job reports its metric every few seconds. Reports are noted as they fall due and made only when a category is
asked for, so that a run whose rules do not look at growth pays next to nothing.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.model.cluster import Bools, Ints
from sterna.model.growth import Direction, GrowthRule, GrowthTable
from sterna.model.snapshot import NEVER
from sterna.model.speedup import Floats

_RATE_SECONDS = 30.0
"""Over how long a growth rate is taken, at least."""


class Progress:
    """Reports of all jobs, and what is made of them."""

    def __init__(self, workload: SharedWorkload, rule: GrowthRule | None, report_seconds: float) -> None:
        count = len(workload)
        self._jobs, self._every = workload, report_seconds
        self._table = GrowthTable(count, rule)
        self._table.declare(np.arange(count), Direction.FALLING)
        self._attempt = np.zeros(count, dtype=np.int64)
        self._noted: list[tuple[Ints, Floats, float, Ints]] = []
        """Not yet taken in: which jobs, their work done, when, and in which attempt."""
        self._since = np.full(count, -NEVER)
        self._first = workload.curves.at(workload.family, np.zeros(count))
        self._marks = [(0.0, np.full(count, np.nan))]
        """The last two times that a growth rate may be taken from, and the best values then."""
        self._quality_work = workload.curves.quality_point()[workload.family] * workload.work
        self.quality_at = np.full(count, NEVER)

    def note(self, now: float, then: float, done: Floats, rate: Floats, runs: Bools) -> None:
        """Time passes: reports fall due, and some models become good."""
        self._note_quality(now, then, done, rate)
        keys = runs.nonzero()[0]
        if not len(keys):
            return
        first, last = int(now // self._every) + 1, int(then // self._every)
        for number in range(first, last + 1):
            at = number * self._every
            self._noted.append((keys, done[keys] + rate[keys] * (at - now), at, self._attempt[keys]))

    def _note_quality(self, now: float, then: float, done: Floats, rate: Floats) -> None:
        goal = self._quality_work
        crossed = ((done < goal) & (done + rate * (then - now) >= goal)).nonzero()[0]
        if len(crossed):
            self.quality_at[crossed] = now + (goal[crossed] - done[crossed]) / rate[crossed]

    def restart(self, key: int) -> None:
        """The job goes on in another attempt, from its last checkpoint."""
        self._attempt[key] += 1

    def growth(self) -> Ints:
        self._take_in()
        return self._table.growth.astype(np.int64)

    def since(self) -> Floats:
        self._take_in()
        return self._since

    def rate(self, now: float) -> Floats:
        """Part of its improvement so far that each gained a second lately."""
        self._take_in()
        at, mark = self._marks[0]
        best = self._table.best
        whole = np.maximum(self._first - best, 1e-12)
        since = np.where(np.isnan(mark), self._first, mark)
        lately: Floats = np.maximum(since - best, 0.0) / whole / max(now - at, _RATE_SECONDS)
        return lately

    def _take_in(self) -> None:
        """Take in what was noted, one span of marks after the other."""
        for _, span in groupby(self._noted, key=lambda noted: noted[2] // _RATE_SECONDS):
            notes = list(span)
            start = notes[0][2] // _RATE_SECONDS * _RATE_SECONDS
            if start > self._marks[-1][0]:
                self._marks = [self._marks[-1], (start, self._table.best)]
            self._take_in_span(notes)
        self._noted.clear()

    def _take_in_span(self, notes: list[tuple[Ints, Floats, float, Ints]]) -> None:
        keys = np.concatenate([noted[0] for noted in notes])
        done = np.concatenate([noted[1] for noted in notes])
        at = np.repeat([noted[2] for noted in notes], [len(noted[0]) for noted in notes])
        attempt = np.concatenate([noted[3] for noted in notes])
        jobs = self._jobs
        value = jobs.curves.at(jobs.family[keys], done / jobs.work[keys])
        changed = self._table.update(keys, done, at, value, attempt)
        self._since[changed] = at[-1]
