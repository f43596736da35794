"""Track progress reports of jobs: growth, speed, remaining work, and records for `LearnedCurves`.

Reports of all jobs are processed together, classified by `model/growth`, and become snapshot columns and estimates for
users. On shared nodes time is CPU time, so that a job with a smaller share does not look slower than it is. No files or
clocks are read here.
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
"""Samples kept per job for its speed; when full, every other one is dropped."""
_RECENT = 0.5
"""Fraction of the samples from which the current speed is computed."""
_RATE_SECONDS = 10.0
"""Minimum interval over which a growth rate is computed."""
_FINISHED = 16
"""Finished jobs whose forecasts calibrate the width of the ETA band."""
_RISING = re.compile(r"acc|score|reward|auc|f1|bleu|recall|precision|map", re.IGNORECASE)
_FALLING = re.compile(r"loss|err|perplex|ppl|mse|mae|rmse|wer|nll", re.IGNORECASE)


class ProgressReport(NamedTuple):
    """One progress report from any source."""

    at: float
    step: int | None
    total: int | None
    metrics: dict[str, float | None]
    """None: the measured value is not a number."""
    saved: bool = False
    """There is a complete checkpoint of this step."""
    cpu_seconds: float = 0.0
    """CPU time of the process at the report; 0: unknown."""


class SpeedSample(NamedTuple):
    """Size and work of a job at a report, from which its speed is computed."""

    attempt: int
    workers: int
    work: float
    """Seconds of one worker with all the cores it can use that the attempt has had; on nodes of its own, elapsed
    seconds."""


@dataclass
class ProgressState:
    """Progress of one job so far."""

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
    """Work and step, of the current attempt at its current size."""
    first: float | None = None
    """First value of its metric."""
    rate: float = math.nan
    rated: float | None = None
    rated_at: float = -NEVER

    @property
    def steps_left(self) -> float:
        """Steps to go; NaN if the total is unknown."""
        return math.nan if not self.total else float(max(self.total - (self.step or 0), 0))

    @property
    def step_work(self) -> float:
        """Recent work per step; NaN before two reports."""
        if len(self.marks) < 2:
            return math.nan
        work, step = self.marks[-1]
        since = self.marks[int((len(self.marks) - 1) * _RECENT)]
        return (work - since[0]) / (step - since[1]) if step > since[1] else math.nan


class ProgressTracker:
    """Progress of all active jobs."""

    def __init__(self, learned_curves: LearnedCurves, rule: GrowthRule | None = None) -> None:
        self.learned_curves = learned_curves
        self._table = GrowthTable(8, rule)
        self._free = list(range(7, -1, -1))
        self._courses: dict[int, ProgressState] = {}
        self._finished: list[History] = []
        self._factors: Factors = SHARED_CORE

    def follow(self, key: int, spec: ProgressSpec, category: str) -> ProgressState:
        """Start to track a job."""
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
        """Classify by another rule from now on, and again the given reports: key, attempt, reports."""
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
        """Stop tracking; a completed job calibrates later forecasts."""
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
        """Process reports of several jobs; return the keys of those about which rules may decide differently now."""
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
        """Choose the declared metric, else `loss`, else the first one reported."""
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
        """Update the recent improvement per second, as a fraction of the whole improvement."""
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

    # Results.

    def growth_of(self, course: ProgressState) -> Growth:
        """Return the growth category; without a metric, PROGRESSING."""
        return Growth(int(self._table.growth[course.slot])) if course.value is not None else Growth.PROGRESSING

    def remaining(self, course: ProgressState) -> float:
        """Return the remaining work in seconds at one worker, by its own speed or else its category's; NaN if
        unknown."""
        left = course.steps_left
        if math.isnan(left):
            return math.nan
        own = course.step_work
        if course.pace is not None and not math.isnan(own):
            return left * own * self.learned_curves.speed(course.category, course.pace.workers)
        known = self.learned_curves.step_seconds(course.category)
        return left * known if known is not None else math.nan

    def eta(self, course: ProgressState) -> Band | None:
        """Return the seconds until its last step at its recent speed."""
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
    """Return the category of similar jobs: as declared, else the name without its number."""
    return declared or re.sub(r"[-_.]*\d+$", "", name) or name
