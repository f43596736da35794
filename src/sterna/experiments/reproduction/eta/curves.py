"""Forecasts of remaining time on recorded trainings: each model is forecast from the other seven.

A recording that is cut at any point is a training that ended there, so one recording gives many jobs. They are
correlated, so a model's jobs are averaged first, then the models. The width of every band comes from the other seven
recordings; no parameter is chosen here.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from sterna.experiments.reproduction.eta.coverage import BandForecast
from sterna.model.eta import Band, Factors, fit_factors, fit_margin, growth_curve, remaining_seconds, seconds_to
from sterna.model.growth import Direction, GrowthTable, History
from sterna.workloads.published.curves import MODELS, RecordingClock, recording

SEEN = (0.25, 0.5, 0.75)
"""Fractions of a job after which its end is forecast."""

_ENDS = tuple(np.linspace(0.25, 1.0, 16).tolist())
"""Fractions of a recording at which a training ends."""

_ALL = 1.0

ByModel = list[list[BandForecast]]


class _CutRecording(NamedTuple):
    """A recording that ends early: its history at the cut, and all of it."""

    seen: History
    whole: History


def finish_forecasts(clock: RecordingClock, seen: float) -> ByModel:
    """Forecast the time until the last step."""
    found: ByModel = []
    for model in MODELS:
        factors, made = _factors_without(model, clock, seen), []
        for job in _jobs(model, clock, seen):
            band = remaining_seconds(job.seen, job.whole.last_step, factors)
            if band is not None:
                made.append(BandForecast(band, job.whole.worked_seconds - job.seen.worked_seconds))
        found.append(made)
    return found


def value_forecasts(seen: float) -> ByModel:
    """Forecast the improvement of the best value from the cut to the last step, relative to the improvement so far."""
    return [
        [
            made
            for job in _jobs(model, RecordingClock.CPU, seen)
            if (made := _value_forecast(job, _margin_without(model, seen)))
        ]
        for model in MODELS
    ]


def value_time_forecasts(clock: RecordingClock, seen: float) -> ByModel:
    """Forecast the time until the best value of a job that still improved after the cut."""
    found: ByModel = []
    for model in MODELS:
        factors, margin, made = _factors_without(model, clock, seen), _margin_without(model, seen), []
        for job in _jobs(model, clock, seen):
            reached = int(job.whole.values.argmin())
            target, still_improves = float(job.whole.values[reached]), job.whole.steps[reached] > job.seen.last_step
            band = seconds_to(job.seen, target, factors, margin) if still_improves else None
            if band is not None and target < job.seen.values.min():
                made.append(BandForecast(band, float(job.whole.seconds[reached] - job.seen.seconds[-1])))
        found.append(made)
    return found


def _jobs(model: str, clock: RecordingClock, seen: float) -> list[_CutRecording]:
    histories = _histories()
    return [_CutRecording(histories[model, clock, end, seen], histories[model, clock, end, _ALL]) for end in _ENDS]


@cache
def _histories() -> dict[tuple[str, RecordingClock, float, float], History]:
    """Return the history of each job at each cut; one update for all is a hundred times as fast as one each."""
    cuts = [
        (model, clock, end, seen)
        for model in MODELS
        for clock in RecordingClock
        for end in _ENDS
        for seen in (*SEEN, _ALL)
    ]
    rows, samples = [], []
    for row, (model, clock, end, seen) in enumerate(cuts):
        reports = recording(model, clock)
        mine = np.array(reports[: int(int(end * len(reports)) * seen)])
        rows.append(np.full(len(mine), row))
        samples.append(mine)
    step, seconds, loss = np.concatenate(samples).T
    table = GrowthTable(len(cuts))
    table.declare(np.arange(len(cuts)), Direction.FALLING)
    table.update(np.concatenate(rows), step, seconds, loss)
    return {cut: table.history(row) for row, cut in enumerate(cuts)}


@cache
def _factors_without(model: str, clock: RecordingClock, seen: float) -> Factors:
    factors = fit_factors([_histories()[other, clock, _ALL, _ALL] for other in MODELS if other != model], seen)
    assert factors is not None  # seven are enough
    return factors


@cache
def _margin_without(model: str, seen: float) -> float:
    others = [(number, other) for number, other in enumerate(MODELS) if other != model]
    misses = [(miss, number) for number, other in others for miss in _misses(other, seen)]
    return fit_margin(*zip(*misses, strict=True))


@cache
def _misses(model: str, seen: float) -> list[float]:
    """Return the distance of each value from its band without a margin."""
    made = [_value_forecast(job, 0.0) for job in _jobs(model, RecordingClock.CPU, seen)]
    return [max(f.band.low - f.outcome, f.outcome - f.band.high) for f in made if f is not None]


def _value_forecast(job: _CutRecording, margin: float) -> BandForecast | None:
    curve = growth_curve(job.seen, margin)
    if curve is None or curve.improved <= 0:
        return None
    band = curve.value_at(float(job.whole.steps[-1]))
    best = min(float(job.whole.values.min()), curve.now_value)
    low, middle, high, gain = (
        (curve.now_value - value) / curve.improved for value in (band.high, band.middle, band.low, best)
    )
    return BandForecast(Band(low, middle, high), gain)
