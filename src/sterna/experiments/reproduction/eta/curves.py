"""Remaining time on recorded trainings: each model is foretold with what the seven others taught, never with itself.

A recording that is cut short at any place is a training that ended there, so that one recording gives many jobs. They
stand or fall together; therefore a model's jobs are averaged first, then the models. Nothing is chosen here: whatever
sets the width of a band comes out of the other seven recordings.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from sterna.experiments.reproduction.eta.coverage import Forecast
from sterna.model.eta import Band, Factors, fit_factors, fit_margin, growth_curve, remaining_seconds, seconds_to
from sterna.model.growth import Direction, GrowthTable, History
from sterna.workloads.published.curves import MODELS, Clock, recording

SEEN = (0.25, 0.5, 0.75)
"""Parts of a job's life after which its end is foretold."""

_ENDS = tuple(np.linspace(0.25, 1.0, 16).tolist())
"""Parts of a recording at which the training is taken to end."""

_ALL = 1.0

ByModel = list[list[Forecast]]


class _Job(NamedTuple):
    """A recording that ends early: what had been seen of it at the cut, and all of it."""

    seen: History
    whole: History


def finish_forecasts(clock: Clock, seen: float) -> ByModel:
    """Time until the last step."""
    found: ByModel = []
    for model in MODELS:
        factors, made = _factors_without(model, clock, seen), []
        for job in _jobs(model, clock, seen):
            band = remaining_seconds(job.seen, job.whole.last_step, factors)
            if band is not None:
                made.append(Forecast(band, job.whole.worked_seconds - job.seen.worked_seconds))
        found.append(made)
    return found


def value_forecasts(seen: float) -> ByModel:
    """Improvement of the best value from the cut to the last step, in parts of the improvement until then."""
    return [
        [made for job in _jobs(model, Clock.CPU, seen) if (made := _value_forecast(job, _margin_without(model, seen)))]
        for model in MODELS
    ]


def value_time_forecasts(clock: Clock, seen: float) -> ByModel:
    """Time until the best value of a job that still improved after the cut."""
    found: ByModel = []
    for model in MODELS:
        factors, margin, made = _factors_without(model, clock, seen), _margin_without(model, seen), []
        for job in _jobs(model, clock, seen):
            reached = int(job.whole.values.argmin())
            target, still_improves = float(job.whole.values[reached]), job.whole.steps[reached] > job.seen.last_step
            band = seconds_to(job.seen, target, factors, margin) if still_improves else None
            if band is not None and target < job.seen.values.min():
                made.append(Forecast(band, float(job.whole.seconds[reached] - job.seen.seconds[-1])))
        found.append(made)
    return found


def _jobs(model: str, clock: Clock, seen: float) -> list[_Job]:
    histories = _histories()
    return [_Job(histories[model, clock, end, seen], histories[model, clock, end, _ALL]) for end in _ENDS]


@cache
def _histories() -> dict[tuple[str, Clock, float, float], History]:
    """What is remembered of each job at each cut: all taken in together, which is a hundred times as fast."""
    cuts = [(model, clock, end, seen) for model in MODELS for clock in Clock for end in _ENDS for seen in (*SEEN, _ALL)]
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
def _factors_without(model: str, clock: Clock, seen: float) -> Factors:
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
    """How far outside its band without a margin each value lay."""
    made = [_value_forecast(job, 0.0) for job in _jobs(model, Clock.CPU, seen)]
    return [max(f.band.low - f.outcome, f.outcome - f.band.high) for f in made if f is not None]


def _value_forecast(job: _Job, margin: float) -> Forecast | None:
    curve = growth_curve(job.seen, margin)
    if curve is None or curve.improved <= 0:
        return None
    band = curve.value_at(float(job.whole.steps[-1]))
    best = min(float(job.whole.values.min()), curve.now_value)
    low, middle, high, gain = (
        (curve.now_value - value) / curve.improved for value in (band.high, band.middle, band.low, best)
    )
    return Forecast(Band(low, middle, high), gain)
