"""Measurements of a category of jobs, and the speed-up curve, step time and restart cost fitted to them.

Used by backends that observe running jobs and by stores that keep the measurements. A `CategoryRecord` holds sums only,
so two are merged by addition, and every field is a number or text. `fit_curve` fits


    seconds a step at n workers = t / n^(1 - loss - bend x log n)        loss, bend >= 0

which is monotone and concave up to its peak and is held flat beyond. The fit is weighted least squares with a linear
curve (n workers, n times as fast) as its prior; every measured worker count pulls the whole curve away from it. Old
measurements are never discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from sterna.model.cached_attribute import cached_attribute
from sterna.model.speedup import LINEAR, Curves, Floats

_GRID = 0.005
"""`loss` and `bend` are rounded to this, so that alike categories share a curve: half a percent at three workers."""

_MISFIT = 0.03
"""Relative distance of a real curve from the nearest one of the family: the error that more steps do not reduce."""
_JITTER = 0.2
"""Relative variation of single steps of a job."""


@dataclass(frozen=True)
class Pace:
    """Sum of the steps of a category at one number of workers, and their duration."""

    workers: int
    steps: float
    seconds: float


@dataclass(frozen=True)
class CategoryRecord:
    """Measurements of the jobs of one category."""

    category: str = ""
    paces: tuple[Pace, ...] = ()
    """One per number of workers, ascending."""
    restarts: int = 0
    restarting_seconds: float = 0.0
    """Total duration of these restarts."""

    @property
    def steps(self) -> float:
        return sum(pace.steps for pace in self.paces)

    def with_steps(self, workers: int, steps: float, seconds: float) -> CategoryRecord:
        """Return the record with one more measurement; invalid ones are ignored."""
        if workers < 1 or not (0 < steps < math.inf and 0 < seconds < math.inf):
            return self
        return replace(self, paces=_add_paces(self.paces, (Pace(workers, steps, seconds),)))

    def with_restart(self, seconds: float) -> CategoryRecord:
        """Return the record with one more start, move or resize by restart that took `seconds`."""
        if not 0 <= seconds < math.inf:
            return self
        return replace(self, restarts=self.restarts + 1, restarting_seconds=self.restarting_seconds + seconds)

    def merge(self, other: CategoryRecord) -> CategoryRecord:
        """Return the sum of two disjoint records of the same category."""
        return CategoryRecord(
            self.category,
            _add_paces(self.paces, other.paces),
            self.restarts + other.restarts,
            self.restarting_seconds + other.restarting_seconds,
        )


def _add_paces(paces: tuple[Pace, ...], more: Iterable[Pace]) -> tuple[Pace, ...]:
    by_workers = {pace.workers: pace for pace in paces}
    for pace in more:
        old = by_workers.get(pace.workers)
        if old is not None:
            pace = Pace(pace.workers, old.steps + pace.steps, old.seconds + pace.seconds)
        by_workers[pace.workers] = pace
    return tuple(by_workers[workers] for workers in sorted(by_workers))


@dataclass(frozen=True)
class Learned:
    """Records of all categories, sorted by name: the content of a store."""

    records: tuple[CategoryRecord, ...] = ()

    def of(self, category: str) -> CategoryRecord:
        """Return the record of a category, empty if there is none."""
        return self._by_category.get(category) or CategoryRecord(category)

    @cached_attribute
    def _by_category(self) -> dict[str, CategoryRecord]:
        return {record.category: record for record in self.records}


@dataclass(frozen=True)
class Prior:
    """Assumptions before any measurement. Spreads are standard deviations of logarithms unless noted."""

    step_seconds: float = 1.0
    """Duration of a step at one worker."""
    step_spread: float = 10.0
    loss_spread: float = 0.3
    """Standard deviation of `loss` itself: four workers are two to four times as fast as one."""
    bend_spread: float = 0.1
    restart_seconds: float = 10.0
    """Counts as one measured restart."""


@dataclass(frozen=True)
class Fit:
    """Fitted curve of a category."""

    step_seconds: float
    """Duration of a step at one worker."""
    loss: float
    bend: float

    def speeds(self, most: int) -> Floats:
        """Return S(1) .. S(most)."""
        return curve(self.loss, self.bend, most)

    def remaining_seconds(self, steps_left: float | None) -> float:
        """Return the remaining work in seconds at one worker; NaN if `steps_left` is None."""
        return math.nan if steps_left is None else max(steps_left, 0.0) * self.step_seconds


def curve(loss: float, bend: float, most: int) -> Floats:
    """Return the speed-ups of the family at 1 .. `most` workers."""
    logs = np.log(np.arange(1, most + 1))
    speeds = np.exp(logs * (1.0 - loss - bend * logs))
    return np.maximum.accumulate(speeds)


class CurveRows:
    """Table of curves that grows with the fits; fits that round to the same parameters share a row."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._row_of: dict[tuple[int, int], int] = {(0, 0): LINEAR}
        self.curves = Curves()

    def row(self, fit: Fit) -> int:
        """Return the row of a fit's curve, added if it is new."""
        loss, bend = round(fit.loss / _GRID), round(fit.bend / _GRID)
        row = self._row_of.get((loss, bend))
        if row is None:
            row = self._row_of[loss, bend] = len(self.curves.rows)
            speeds = curve(loss * _GRID, bend * _GRID, self._most)
            self.curves = Curves((*self.curves.rows, tuple(speeds.tolist())))
        return row


def fit_curve(record: CategoryRecord, prior: Prior | None = None) -> Fit:
    """Return the most probable curve of the family, given the measurements and the prior."""
    prior = prior or Prior()
    spreads = np.array([prior.step_spread, prior.loss_spread, prior.bend_spread])
    precision = np.diag(1.0 / spreads**2)
    pull = precision @ np.array([math.log(prior.step_seconds), 0.0, 0.0])
    if record.paces:
        workers, steps, seconds = np.array([(pace.workers, pace.steps, pace.seconds) for pace in record.paces]).T
        logs = np.log(workers)
        design = np.stack([np.ones_like(logs), logs, logs * logs])
        weights = 1.0 / (_MISFIT**2 + _JITTER**2 / steps)
        precision = precision + (design * weights) @ design.T
        pull = pull + (design * weights) @ (np.log(seconds / steps) + logs)
    step, loss, bend = _solve_non_negative(precision, pull)
    return Fit(math.exp(step), loss, bend)


def _solve_non_negative(precision: Floats, pull: Floats) -> tuple[float, float, float]:
    """Solve least squares under `loss >= 0` and `bend >= 0`: the best solution with terms left out."""
    best, least = (0.0, 0.0, 0.0), math.inf
    for kept in ([0, 1, 2], [0, 1], [0, 2], [0]):
        found = np.zeros(3)
        found[kept] = np.linalg.solve(precision[np.ix_(kept, kept)], pull[kept])
        cost = float(found @ precision @ found / 2 - pull @ found)
        if found[1] >= 0 and found[2] >= 0 and cost < least:
            best, least = (float(found[0]), float(found[1]), float(found[2])), cost
            if len(kept) == 3:
                break
    return best


def restart_seconds(records: Iterable[CategoryRecord], prior: Prior | None = None) -> float:
    """Return the mean duration of a restart, with the prior as one more measurement."""
    count, seconds = 1, (prior or Prior()).restart_seconds
    for record in records:
        count += record.restarts
        seconds += record.restarting_seconds
    return seconds / count
