"""Progress reports of simulated jobs, and the growth categories that follow from them.

A running job reports its metric every few seconds. Reports are queued when they fall due and evaluated only when a rule
reads a growth category, so a run without such a rule pays next to nothing.
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
"""Shortest period over which a growth rate is measured."""


class SimulatedProgress:
    """Reports and growth categories of all jobs."""

    def __init__(self, workload: SharedWorkload, rule: GrowthRule, report_seconds: float) -> None:
        count = len(workload)
        self._jobs, self._every = workload, report_seconds
        self._table = GrowthTable(count, rule)
        self._table.declare(np.arange(count), Direction.FALLING)
        self._table.set_totals(np.arange(count), workload.known)
        self._attempt = np.zeros(count, dtype=np.int64)
        self._queued: list[tuple[Ints, Floats, float, Ints]] = []
        """Reports to evaluate: jobs, their work done, time, and attempt of each."""
        self._since = np.full(count, -NEVER)
        self._first = workload.curves.at(workload.family, np.zeros(count))
        self._marks = [(0.0, np.full(count, np.nan))]
        """The last two start times of a growth rate, and the best metric values then."""
        self._quality_work = workload.curves.quality_point()[workload.family] * workload.work
        self.quality_at = np.full(count, NEVER)

    def advance(self, now: float, then: float, done: Floats, rate: Floats, runs: Bools) -> None:
        """Queue the reports that fall due between `now` and `then`, and record which jobs reach their quality."""
        self._record_quality(now, then, done, rate)
        keys = runs.nonzero()[0]
        if not len(keys):
            return
        first, last = int(now // self._every) + 1, int(then // self._every)
        for number in range(first, last + 1):
            at = number * self._every
            self._queued.append((keys, done[keys] + rate[keys] * (at - now), at, self._attempt[keys]))

    def _record_quality(self, now: float, then: float, done: Floats, rate: Floats) -> None:
        goal = self._quality_work
        crossed = ((done < goal) & (done + rate * (then - now) >= goal)).nonzero()[0]
        if len(crossed):
            self.quality_at[crossed] = now + (goal[crossed] - done[crossed]) / rate[crossed]

    def restart(self, key: int) -> None:
        """Begin another attempt of a job, from its last checkpoint."""
        self._attempt[key] += 1

    def growth(self) -> Ints:
        self._evaluate()
        return self._table.growth.astype(np.int64)

    def since(self) -> Floats:
        self._evaluate()
        return self._since

    def rate(self, now: float) -> Floats:
        """Return the fraction of its improvement so far that each job gained per second in the last period."""
        self._evaluate()
        at, mark = self._marks[0]
        best = self._table.best
        whole = np.maximum(self._first - best, 1e-12)
        since = np.where(np.isnan(mark), self._first, mark)
        lately: Floats = np.maximum(since - best, 0.0) / whole / max(now - at, _RATE_SECONDS)
        return lately

    def _evaluate(self) -> None:
        """Evaluate the queued reports, one period of `_marks` after the other."""
        for _, span in groupby(self._queued, key=lambda report: report[2] // _RATE_SECONDS):
            reports = list(span)
            start = reports[0][2] // _RATE_SECONDS * _RATE_SECONDS
            if start > self._marks[-1][0]:
                self._marks = [self._marks[-1], (start, self._table.best)]
            self._evaluate_span(reports)
        self._queued.clear()

    def _evaluate_span(self, reports: list[tuple[Ints, Floats, float, Ints]]) -> None:
        keys = np.concatenate([report[0] for report in reports])
        done = np.concatenate([report[1] for report in reports])
        at = np.repeat([report[2] for report in reports], [len(report[0]) for report in reports])
        attempt = np.concatenate([report[3] for report in reports])
        jobs = self._jobs
        value = jobs.curves.at(jobs.family[keys], done / jobs.work[keys])
        changed = self._table.update(keys, done, at, value, attempt)
        self._since[changed] = at[-1]
