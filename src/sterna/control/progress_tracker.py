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
    sample: SpeedSample | None = None
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
        self._states: dict[int, ProgressState] = {}
        self._finished: list[History] = []
        self._factors: Factors = SHARED_CORE

    def follow(self, key: int, spec: ProgressSpec, category: str) -> ProgressState:
        """Start to track a job."""
        if not self._free:
            size = len(self._table)
            self._table.resize(2 * size)
            self._free = list(range(2 * size - 1, size - 1, -1))
        state = ProgressState(self._free.pop(), spec, category, total=spec.total or None, metric=spec.metric)
        self._states[key] = state
        if state.metric:
            self._declare(state)
        return state

    def set_growth_rule(
        self, rule: GrowthRule, reports_by_job: Iterable[tuple[int, int, Sequence[ProgressReport]]]
    ) -> None:
        """Classify by another rule from now on, and again the given reports: key, attempt, reports."""
        self._table = GrowthTable(len(self._table), rule)
        for state in self._states.values():
            if state.metric:
                self._declare(state)
        for key, attempt, reports in reports_by_job:
            state_of_key = self._states.get(key)
            if state_of_key is not None and reports:
                self._classify(state_of_key, reports, attempt)

    def _classify(self, state: ProgressState, reports: Sequence[ProgressReport], attempt: int) -> None:
        rows = [state.slot] * len(reports)
        steps = [-1.0 if report.step is None else float(report.step) for report in reports]
        self._table.update(
            rows,
            steps,
            [report.at for report in reports],
            [self._metric_value(state, report) for report in reports],
            attempt,
        )

    def forget(self, key: int, is_complete: bool = False) -> None:
        """Stop tracking; a completed job calibrates later forecasts."""
        state = self._states.pop(key, None)
        if state is None:
            return
        history = self._table.history(state.slot)
        if is_complete and len(history.steps) >= LEAST_WINDOWS:
            self._finished = [*self._finished[1 - _FINISHED :], history]
            self._factors = fit_factors(self._finished) or SHARED_CORE
        self._table.forget([state.slot])
        self._free.append(state.slot)

    def of(self, key: int) -> ProgressState | None:
        return self._states.get(key)

    # Reports.

    def add_reports(self, reports_by_job: Iterable[tuple[int, Sequence[ProgressReport], SpeedSample]]) -> set[int]:
        """Process reports of several jobs; return the keys of those about which rules may decide differently now."""
        news: set[int] = set()
        rows, steps, times, values, attempts = [], [], [], [], []
        for key, reports, sample in reports_by_job:
            state = self._states.get(key)
            if state is None or not reports:
                continue
            was_known = not math.isnan(state.steps_left) and not math.isnan(state.step_work)
            self._add_reports(state, reports, sample)
            if not was_known and not math.isnan(state.step_work) and not math.isnan(state.steps_left):
                news.add(key)
            for report in reports:
                rows.append(state.slot)
                steps.append(-1.0 if report.step is None else float(report.step))
                times.append(report.at)
                values.append(self._metric_value(state, report))
                attempts.append(sample.attempt)
        if rows:
            key_of = {state.slot: key for key, state in self._states.items()}
            for slot in self._table.update(rows, steps, times, values, attempts).tolist():
                state = self._states[key_of[slot]]
                state.growth_since = state.reported_at
                if state.value is not None:
                    news.add(key_of[slot])
        return news

    def _add_reports(self, state: ProgressState, reports: Sequence[ProgressReport], sample: SpeedSample) -> None:
        for report in reports:
            self._choose_metric(state, report)
            if report.total:
                state.total = report.total
                self._table.set_totals([state.slot], float(report.total))
            value = report.metrics.get(state.metric)
            if value is not None and math.isfinite(value):
                state.value = value
                state.first = value if state.first is None else state.first
            if report.step is not None:
                state.step = report.step
            state.reported_at = max(state.reported_at, report.at)
        self._update_rate(state)
        self._add_sample(state, sample)

    def _choose_metric(self, state: ProgressState, report: ProgressReport) -> None:
        """Choose the declared metric, else `loss`, else the first one reported."""
        if state.metric or not report.metrics:
            return
        state.metric = "loss" if "loss" in report.metrics else next(iter(report.metrics))
        self._table.forget([state.slot])  # reports without a value were only counted
        self._declare(state)

    def _declare(self, state: ProgressState) -> None:
        self._table.declare([state.slot], _direction(state.metric, state.spec.goal))
        self._table.set_totals([state.slot], float(state.total or math.nan))

    def _metric_value(self, state: ProgressState, report: ProgressReport) -> float:
        if not state.metric:
            return 0.0
        value = report.metrics.get(state.metric)
        return math.nan if value is None else value

    def _update_rate(self, state: ProgressState) -> None:
        """Update the recent improvement per second, as a fraction of the whole improvement."""
        if state.value is None or state.first is None:
            return
        if state.rated is None:
            state.rated, state.rated_at = state.value, state.reported_at
        elif state.reported_at - state.rated_at >= _RATE_SECONDS:
            whole = max(abs(state.first - state.value), 1e-12)
            state.rate = abs(state.rated - state.value) / whole / (state.reported_at - state.rated_at)
            state.rated, state.rated_at = state.value, state.reported_at

    def _add_sample(self, state: ProgressState, sample: SpeedSample) -> None:
        if state.step is None:
            return
        old = state.sample
        if old is None or (old.attempt, old.workers) != (sample.attempt, sample.workers):
            state.marks.clear()
        elif state.marks and state.step > state.marks[-1][1]:
            work, step = state.marks[-1]
            self.learned_curves.add_steps(state.category, sample.workers, state.step - step, sample.work - work)
        state.sample = sample
        if not state.marks or (state.step > state.marks[-1][1] and sample.work > state.marks[-1][0]):
            state.marks.append((sample.work, float(state.step)))
        if len(state.marks) > _MARKS:
            state.marks = state.marks[::2]

    # Results.

    def growth_of(self, state: ProgressState) -> Growth:
        """Return the growth category; without a metric, PROGRESSING."""
        return Growth(int(self._table.growth[state.slot])) if state.value is not None else Growth.PROGRESSING

    def remaining(self, state: ProgressState) -> float:
        """Return the remaining work in seconds at one worker, by its own speed or else its category's; NaN if
        unknown."""
        left = state.steps_left
        if math.isnan(left):
            return math.nan
        own = state.step_work
        if state.sample is not None and not math.isnan(own):
            return left * own * self.learned_curves.speed(state.category, state.sample.workers)
        known = self.learned_curves.step_seconds(state.category)
        return left * known if known is not None else math.nan

    def eta(self, state: ProgressState) -> Band | None:
        """Return the seconds until its last step at its recent speed."""
        if not state.total:
            return None
        return remaining_seconds(self._table.history(state.slot), state.total, self._factors)


def _direction(metric: str, goal: str) -> Direction:
    if goal:
        return Direction.RISING if goal == "max" else Direction.FALLING
    if _FALLING.search(metric):
        return Direction.FALLING
    return Direction.RISING if _RISING.search(metric) else Direction.DETECTED


def category_of(name: str, declared: str = "") -> str:
    """Return the category of similar jobs: as declared, else the name without its number."""
    return declared or re.sub(r"[-_.]*\d+$", "", name) or name
