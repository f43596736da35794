"""What training jobs tell of themselves, and what is made of it: growth, pace, work left, lessons for others.

Progress reports of all jobs come in together, are judged by `model/growth`, and become the columns that rules read and
the estimates that people see. On shared nodes time is counted in CPU seconds, so that a job which was given less does
not look slower than it is. Nothing here reads files or clocks, and nothing is decided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sterna.control.learned_curves import LearnedCurves
from sterna.model.eta import LEAST_WINDOWS, SHARED_CORE, Band, Factors, fit_factors, remaining_seconds
from sterna.model.growth import Direction, Growth, GrowthRule, GrowthTable, History
from sterna.model.job import ProgressSpec
from sterna.model.snapshot import NEVER

_MARKS = 32
"""Points of a job's course that are kept for its pace; when they are full every other one goes."""
_RECENT = 0.5
"""Part of them from which the present pace is taken."""
_RATE_SECONDS = 10.0
"""Over how long a growth rate is taken, at least."""
_FINISHED = 16
"""Finished jobs whose forecasts teach how wide a band must be."""
_RISING = re.compile(r"acc|score|reward|auc|f1|bleu|recall|precision|map", re.IGNORECASE)
_FALLING = re.compile(r"loss|err|perplex|ppl|mse|mae|rmse|wer|nll", re.IGNORECASE)


class ProgressReport(NamedTuple):
    """One progress report, wherever it came from."""

    at: float
    step: int | None
    total: int | None
    metrics: dict[str, float | None]
    """None: what was measured is no number."""
    saved: bool = False
    """It says that it has a complete checkpoint of this step."""
    cpu_seconds: float = 0.0
    """That the process had used by then; 0 where it does not say."""


class SpeedSample(NamedTuple):
    """How a job stands at a report: what is needed to tell how fast it is."""

    attempt: int
    workers: int
    work: float
    """Seconds of one worker with all the cores it can use that the attempt has had so far; on nodes of its own these
    are the seconds that have passed."""


@dataclass
class ProgressState:
    """What one job has told so far."""

    slot: int
    spec: ProgressSpec
    category: str
    step: int | None = None
    total: int | None = None
    metric: str = ""
    value: float | None = None
    reported_at: float = -NEVER
    growth_since: float = -NEVER
    pace: SpeedSample | None = None
    marks: list[tuple[float, float]] = field(default_factory=list)
    """Work and step, of the present attempt at its present size."""
    first: float | None = None
    """The first value of its metric."""
    rate: float = math.nan
    rated: float | None = None
    rated_at: float = -NEVER

    @property
    def steps_left(self) -> float:
        """No number where the total is unknown."""
        return math.nan if not self.total else float(max(self.total - (self.step or 0), 0))

    @property
    def step_work(self) -> float:
        """Work of one step lately; no number before two reports."""
        if len(self.marks) < 2:
            return math.nan
        work, step = self.marks[-1]
        since = self.marks[int((len(self.marks) - 1) * _RECENT)]
        return (work - since[0]) / (step - since[1]) if step > since[1] else math.nan


class ProgressTracker:
    """The courses of all active jobs."""

    def __init__(self, learned_curves: LearnedCurves, rule: GrowthRule | None = None) -> None:
        self.learned_curves = learned_curves
        self._table = GrowthTable(8, rule)
        self._free = list(range(7, -1, -1))
        self._courses: dict[int, ProgressState] = {}
        self._finished: list[History] = []
        self._factors: Factors = SHARED_CORE

    def follow(self, key: int, spec: ProgressSpec, category: str) -> ProgressState:
        """Begin to listen to a job."""
        if not self._free:
            size = len(self._table)
            self._table.resize(2 * size)
            self._free = list(range(2 * size - 1, size - 1, -1))
        course = ProgressState(self._free.pop(), spec, category, total=spec.total or None, metric=spec.metric)
        self._courses[key] = course
        if course.metric:
            self._table.declare([course.slot], _direction(course.metric, spec.goal))
        return course

    def set_growth_rule(self, rule: GrowthRule, heard: Iterable[tuple[int, int, Sequence[ProgressReport]]]) -> None:
        """Find categories by another rule from now on, and again for what was heard: key, attempt and reports."""
        self._table = GrowthTable(len(self._table), rule)
        for course in self._courses.values():
            if course.metric:
                self._table.declare([course.slot], _direction(course.metric, course.spec.goal))
        for key, attempt, reports in heard:
            course_of_key = self._courses.get(key)
            if course_of_key is not None and reports:
                self._judge(course_of_key, reports, attempt)

    def _judge(self, course: ProgressState, reports: Sequence[ProgressReport], attempt: int) -> None:
        rows = [course.slot] * len(reports)
        steps = [-1.0 if told.step is None else float(told.step) for told in reports]
        self._table.update(
            rows, steps, [told.at for told in reports], [self._value(course, told) for told in reports], attempt
        )

    def forget(self, key: int, is_complete: bool = False) -> None:
        """Stop listening; what a finished job's forecasts were worth is kept."""
        course = self._courses.pop(key, None)
        if course is None:
            return
        history = self._table.history(course.slot)
        if is_complete and len(history.steps) >= LEAST_WINDOWS:
            self._finished = [*self._finished[1 - _FINISHED :], history]
            self._factors = fit_factors(self._finished) or SHARED_CORE
        self._table.forget([course.slot])
        self._free.append(course.slot)

    def of(self, key: int) -> ProgressState | None:
        return self._courses.get(key)

    # Reports.

    def take(self, heard: Iterable[tuple[int, Sequence[ProgressReport], SpeedSample]]) -> set[int]:
        """Take in reports of some jobs; the keys of those about which a rule would now think otherwise."""
        news: set[int] = set()
        rows, steps, times, values, attempts = [], [], [], [], []
        for key, reports, pace in heard:
            course = self._courses.get(key)
            if course is None or not reports:
                continue
            was_known = not math.isnan(course.steps_left) and not math.isnan(course.step_work)
            self._advance(course, reports, pace)
            if not was_known and not math.isnan(course.step_work) and not math.isnan(course.steps_left):
                news.add(key)
            for told in reports:
                rows.append(course.slot)
                steps.append(-1.0 if told.step is None else float(told.step))
                times.append(told.at)
                values.append(self._value(course, told))
                attempts.append(pace.attempt)
        if rows:
            key_of = {course.slot: key for key, course in self._courses.items()}
            for slot in self._table.update(rows, steps, times, values, attempts).tolist():
                course = self._courses[key_of[slot]]
                course.growth_since = course.reported_at
                if course.value is not None:
                    news.add(key_of[slot])
        return news

    def _advance(self, course: ProgressState, reports: Sequence[ProgressReport], pace: SpeedSample) -> None:
        for told in reports:
            self._choose_metric(course, told)
            if told.total:
                course.total = told.total
            value = told.metrics.get(course.metric)
            if value is not None and math.isfinite(value):
                course.value = value
                course.first = value if course.first is None else course.first
            if told.step is not None:
                course.step = told.step
            course.reported_at = max(course.reported_at, told.at)
        self._rate(course)
        self._pace(course, pace)

    def _choose_metric(self, course: ProgressState, told: ProgressReport) -> None:
        """The one that was declared; else `loss`, else the first that is heard of."""
        if course.metric or not told.metrics:
            return
        course.metric = "loss" if "loss" in told.metrics else next(iter(told.metrics))
        self._table.forget([course.slot])  # reports without a value were only counted
        self._table.declare([course.slot], _direction(course.metric, course.spec.goal))

    def _value(self, course: ProgressState, told: ProgressReport) -> float:
        if not course.metric:
            return 0.0
        value = told.metrics.get(course.metric)
        return math.nan if value is None else value

    def _rate(self, course: ProgressState) -> None:
        """Part of its improvement so far that it gained a second lately."""
        if course.value is None or course.first is None:
            return
        if course.rated is None:
            course.rated, course.rated_at = course.value, course.reported_at
        elif course.reported_at - course.rated_at >= _RATE_SECONDS:
            whole = max(abs(course.first - course.value), 1e-12)
            course.rate = abs(course.rated - course.value) / whole / (course.reported_at - course.rated_at)
            course.rated, course.rated_at = course.value, course.reported_at

    def _pace(self, course: ProgressState, pace: SpeedSample) -> None:
        if course.step is None:
            return
        old = course.pace
        if old is None or (old.attempt, old.workers) != (pace.attempt, pace.workers):
            course.marks.clear()
        elif course.marks and course.step > course.marks[-1][1]:
            work, step = course.marks[-1]
            self.learned_curves.add_steps(course.category, pace.workers, course.step - step, pace.work - work)
        course.pace = pace
        if not course.marks or (course.step > course.marks[-1][1] and pace.work > course.marks[-1][0]):
            course.marks.append((pace.work, float(course.step)))
        if len(course.marks) > _MARKS:
            course.marks = course.marks[::2]

    # What follows from them.

    def growth_of(self, course: ProgressState) -> Growth:
        """Of a job that tells no metric nothing is known, which counts as progressing."""
        return Growth(int(self._table.growth[course.slot])) if course.value is not None else Growth.PROGRESSING

    def remaining(self, course: ProgressState) -> float:
        """Work left in seconds at one worker, by its own pace or else its category's; no number where unknown."""
        left = course.steps_left
        if math.isnan(left):
            return math.nan
        own = course.step_work
        if course.pace is not None and not math.isnan(own):
            return left * own * self.learned_curves.speed(course.category, course.pace.workers)
        known = self.learned_curves.step_seconds(course.category)
        return left * known if known is not None else math.nan

    def eta(self, course: ProgressState) -> Band | None:
        """Seconds until its last step, if it goes on as lately."""
        if not course.total:
            return None
        return remaining_seconds(self._table.history(course.slot), course.total, self._factors)


def _direction(metric: str, goal: str) -> Direction:
    if goal:
        return Direction.RISING if goal == "max" else Direction.FALLING
    if _FALLING.search(metric):
        return Direction.FALLING
    return Direction.RISING if _RISING.search(metric) else Direction.DETECTED


def category_of(name: str, declared: str = "") -> str:
    """Jobs assumed alike: as declared, else the name without what numbers it."""
    return declared or re.sub(r"[-_.]*\d+$", "", name) or name
