"""What runs have taught about a category of jobs: its speed-up curve, its step time and what a restart costs it.

For backends that watch jobs train and for stores that keep what was seen. A `Lesson` holds sums only, so two of them
are merged by adding, and every field is a plain number or text. `fitted` turns one into a curve:

    seconds a step at n workers = t / n^(1 - loss - bend x log n)        loss, bend >= 0

which is monotone and concave up to its peak and is held flat beyond. The fit is weighted least squares with a prior:
nothing measured is linear (n workers, n times as fast), and every count measured pulls the curve away from that, the
counts nobody measured included. Old evidence is never forgotten here, and nothing is decided.
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
"""How far, as a share, a real curve lies from the family's nearest: no number of steps makes one count surer."""
_JITTER = 0.2
"""How much single steps of a job vary, as a share."""


@dataclass(frozen=True)
class Pace:
    """All steps of a category that were seen at one number of workers."""

    workers: int
    steps: float
    seconds: float


@dataclass(frozen=True)
class Lesson:
    """What the jobs of one category have shown so far."""

    category: str = ""
    paces: tuple[Pace, ...] = ()
    """By rising number of workers, one for each."""
    restarts: int = 0
    restarting_seconds: float = 0.0
    """Of all of them together."""

    @property
    def steps(self) -> float:
        return sum(pace.steps for pace in self.paces)

    def with_steps(self, workers: int, steps: float, seconds: float) -> Lesson:
        """One more stretch of training. What cannot be a measurement is left out."""
        if workers < 1 or not (0 < steps < math.inf and 0 < seconds < math.inf):
            return self
        return replace(self, paces=_added(self.paces, (Pace(workers, steps, seconds),)))

    def with_restart(self, seconds: float) -> Lesson:
        """One more start, move or resize by restart, and how long the job stood still for it."""
        if not 0 <= seconds < math.inf:
            return self
        return replace(self, restarts=self.restarts + 1, restarting_seconds=self.restarting_seconds + seconds)

    def merged(self, other: Lesson) -> Lesson:
        """What two places have seen of the same category, none of it twice."""
        return Lesson(
            self.category,
            _added(self.paces, other.paces),
            self.restarts + other.restarts,
            self.restarting_seconds + other.restarting_seconds,
        )


def _added(paces: tuple[Pace, ...], more: Iterable[Pace]) -> tuple[Pace, ...]:
    by_workers = {pace.workers: pace for pace in paces}
    for pace in more:
        old = by_workers.get(pace.workers)
        if old is not None:
            pace = Pace(pace.workers, old.steps + pace.steps, old.seconds + pace.seconds)
        by_workers[pace.workers] = pace
    return tuple(by_workers[workers] for workers in sorted(by_workers))


@dataclass(frozen=True)
class Learned:
    """The lessons of all categories, in the order of their names: what a store keeps."""

    lessons: tuple[Lesson, ...] = ()

    def of(self, category: str) -> Lesson:
        """An empty one where nothing was seen yet."""
        return self._by_category.get(category) or Lesson(category)

    @cached_attribute
    def _by_category(self) -> dict[str, Lesson]:
        return {lesson.category: lesson for lesson in self.lessons}


@dataclass(frozen=True)
class Prior:
    """What is assumed before anything was seen. Spreads are standard deviations, of logarithms where not said."""

    step_seconds: float = 1.0
    """Of a step at one worker. Where other categories are known, their mean is a better guess."""
    step_spread: float = 10.0
    loss_spread: float = 0.3
    """Of `loss` itself: four workers may well be two to four times as fast as one."""
    bend_spread: float = 0.1
    restart_seconds: float = 10.0
    """Weighs as much as one restart that was seen."""


@dataclass(frozen=True)
class Fit:
    """A category's curve as far as it is known."""

    step_seconds: float
    """At one worker."""
    loss: float
    bend: float

    def speeds(self, most: int) -> Floats:
        """S(1), S(2) .. S(most): S(1) is 1, none falls, no gain is above the one before."""
        return curve(self.loss, self.bend, most)

    def remaining_seconds(self, steps_left: float | None) -> float:
        """Work left, in seconds at one worker; no number where the total is unknown."""
        return math.nan if steps_left is None else max(steps_left, 0.0) * self.step_seconds


def curve(loss: float, bend: float, most: int) -> Floats:
    """The family's speed-ups at 1 .. `most` workers."""
    logs = np.log(np.arange(1, most + 1))
    speeds = np.exp(logs * (1.0 - loss - bend * logs))
    return np.maximum.accumulate(speeds)


class CurveRows:
    """A table of curves that grows as fits need them. Fits that differ by less than anybody could tell share a row."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._row_of: dict[tuple[int, int], int] = {(0, 0): LINEAR}
        self.curves = Curves()

    def row(self, fit: Fit) -> int:
        """The row of a fit's curve."""
        loss, bend = round(fit.loss / _GRID), round(fit.bend / _GRID)
        row = self._row_of.get((loss, bend))
        if row is None:
            row = self._row_of[loss, bend] = len(self.curves.rows)
            speeds = curve(loss * _GRID, bend * _GRID, self._most)
            self.curves = Curves((*self.curves.rows, tuple(speeds.tolist())))
        return row


def fitted(lesson: Lesson, prior: Prior | None = None) -> Fit:
    """The most probable curve of the family, given what was seen and what was assumed."""
    prior = prior or Prior()
    spreads = np.array([prior.step_spread, prior.loss_spread, prior.bend_spread])
    precision = np.diag(1.0 / spreads**2)
    pull = precision @ np.array([math.log(prior.step_seconds), 0.0, 0.0])
    if lesson.paces:
        workers, steps, seconds = np.array([(pace.workers, pace.steps, pace.seconds) for pace in lesson.paces]).T
        logs = np.log(workers)
        design = np.stack([np.ones_like(logs), logs, logs * logs])
        weights = 1.0 / (_MISFIT**2 + _JITTER**2 / steps)
        precision = precision + (design * weights) @ design.T
        pull = pull + (design * weights) @ (np.log(seconds / steps) + logs)
    step, loss, bend = _with_signs(precision, pull)
    return Fit(math.exp(step), loss, bend)


def _with_signs(precision: Floats, pull: Floats) -> tuple[float, float, float]:
    """The least squares under `loss >= 0` and `bend >= 0`: the best of the few ways to leave terms out."""
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


def restart_seconds(lessons: Iterable[Lesson], prior: Prior | None = None) -> float:
    """What a restart costs: the mean of those seen, the prior counting as one more."""
    count, seconds = 1, (prior or Prior()).restart_seconds
    for lesson in lessons:
        count += lesson.restarts
        seconds += lesson.restarting_seconds
    return seconds / count
