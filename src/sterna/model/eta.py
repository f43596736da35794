"""Remaining time of a job: until its last step, by its speed, or until a target value, by its growth curve.

Every result is a band that should contain 80 % of the outcomes. Its width is learned from the errors of the same
forecast for other jobs (`fit_factors`, `fit_factors_until`); if jobs err alike, the band holds by construction. The
caller applies the speed-up of more workers. The `eta` study measures the bands on recorded trainings and replayed
traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sterna.model.cluster import Ints
from sterna.model.growth import GrowthTable, History
from sterna.model.speedup import Floats

LEAST_WINDOWS = 8
"""Fewest windows for a forecast."""

LEAST_JOBS = 4
"""Fewest other jobs to learn a band from."""

_HELD = 0.8
"""Fraction of outcomes that a band should contain."""
_ENOUGH = 9
"""Jobs from which each end of a band is learned separately."""

_RECENT = 0.4
"""Fraction of the windows, the latest, that the current pace is measured on."""

_SHAPES = (0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
"""Powers of the candidate curves, from a slow power law to an exponential."""
_EVIDENCE = 8.0
"""Effective sample size: errors of windows are correlated, so all of them weigh as much as this many independent
ones."""
_BLUR = 0.01
"""Fraction of a job's whole range within which curves count as equally good."""

MARGIN = 0.07
"""Widening of a band of values on either side, as a fraction of the job's improvement so far: fitted to the eight
recorded trainings at half of their length. `fit_margin` computes it for other jobs."""


@dataclass(frozen=True, slots=True)
class Band:
    """Prediction and the range that should contain 80 % of the outcomes; infinite if it may never happen."""

    low: float
    middle: float
    high: float

    def __contains__(self, outcome: float) -> bool:
        return self.low <= outcome <= self.high

    def times(self, factor: float) -> Band:
        return Band(self.low * factor, self.middle * factor, self.high * factor)


class Bands(NamedTuple):
    """Bands of many jobs, one entry each; NaN where there is no forecast."""

    low: Floats
    middle: Floats
    high: Floats


class Factors(NamedTuple):
    """Factors that turn a forecast at the current pace into a band."""

    low: float
    middle: float
    high: float

    def around(self, forecast: float) -> Band:
        return Band(self.low * forecast, self.middle * forecast, self.high * forecast)


SHARED_CORE = Factors(0.75, 1.04, 1.33)
"""Factors of eight recorded trainings on a shared core, for a cluster without finished jobs."""


# Errors of earlier forecasts.


def factors_of(errors: npt.ArrayLike, jobs: npt.ArrayLike | None = None) -> Factors | None:
    """Return factors from logarithms of outcome over forecast; every job has the same weight.

    The quantiles are those between which the outcome of one more job lies with probability 0.8, if jobs are
    exchangeable.
    """
    values = np.asarray(errors, dtype=np.float64)
    job = np.arange(len(values)) if jobs is None else np.asarray(jobs, dtype=np.int64)
    names, number, times = np.unique(job, return_inverse=True, return_counts=True)
    if len(names) < LEAST_JOBS:
        return None
    weight = 1.0 / times[number]
    middle = _quantile(values, weight, 0.5)
    tail = (1 - _HELD) / 2
    if len(names) >= _ENOUGH:
        ends = _quantile(values, weight, tail, len(names)), _quantile(values, weight, 1 - tail, len(names))
    else:
        reach = _quantile(np.abs(values), weight, _HELD, len(names))
        ends = -reach, reach
    return Factors(*np.exp([min(ends[0], middle), middle, max(ends[1], middle)]).tolist())


def _quantile(values: Floats, weight: Floats, part: float, jobs: int = 0) -> float:
    """Return an interpolated quantile; with `jobs`, the value that one more job is below with probability `part`."""
    order = values.argsort(kind="stable")
    below = (weight[order].cumsum() - weight[order] / 2) / weight.sum()
    at = ((jobs + 1) * part - 0.5) / jobs if jobs else part
    return float(np.interp(at, below, values[order]))


def fit_factors_until(now: float, made: Floats, forecast: Floats, ended: Floats) -> Factors | None:
    """Return factors from forecasts of remaining time that were `made` before now.

    A job that has not `ended` is a censored outcome (it takes at least until now); leaving those out would bias the
    factors towards short jobs.
    """
    is_open = ended > now
    took = np.where(is_open, now, ended) - made
    is_known = (took > 0) & (forecast > 0) & (made < now)
    took, forecast, is_open = took[is_known], forecast[is_known], is_open[is_known]
    if int((~is_open).sum()) < _ENOUGH:
        return None
    errors = np.log(took / forecast)
    order = np.lexsort((is_open, errors))
    errors, is_open = errors[order], is_open[order]
    count = len(errors)
    still = np.where(is_open, 1.0, 1.0 - 1.0 / np.arange(count, 0, -1)).cumprod()
    by_then = (1.0 - still[~is_open]) * count / (count + 1)
    seen = errors[~is_open]
    low = max(int(by_then.searchsorted((1 - _HELD) / 2, "right")) - 1, 0)
    middle, high = by_then.searchsorted((0.5 - _ROUNDING, (1 + _HELD) / 2 - _ROUNDING)).tolist()
    ends = np.append(np.exp(seen), np.inf)
    return Factors(float(ends[low]), float(ends[middle]), float(ends[high]))


_ROUNDING = 1e-12


def fit_factors(finished: Sequence[History], seen: float = 0.5) -> Factors | None:
    """Return factors from finished jobs: the errors of forecasts at the fraction `seen` of a run that ends at each of
    their windows. None if there are too few jobs."""
    errors = [_errors(history, 1 / seen - 1) for history in finished if len(history.steps) >= LEAST_WINDOWS]
    if not errors:
        return None
    return factors_of(np.concatenate(errors), np.repeat(np.arange(len(errors)), [len(e) for e in errors]))


def _errors(history: History, reach: float) -> Floats:
    """Return the logarithm of outcome over forecast, at each window, for `reach` times the steps so far."""
    steps, seconds = history.steps, history.seconds
    last = int(steps.searchsorted(steps[-1] / (1 + reach), "right")) if len(steps) else 0
    at = np.arange(LEAST_WINDOWS - 1, last)
    ahead = reach * steps[at]
    took = np.interp(steps[at] + ahead, steps, seconds) - seconds[at]
    errors: Floats = np.log(took / (ahead * _pace(steps[:, None], seconds[:, None], at + 1)))
    return errors


# Time to a step.


def remaining_seconds(history: History, total_steps: float, factors: Factors = SHARED_CORE) -> Band | None:
    """Return the time until the last step at the current speed; None if the history is too short."""
    return seconds_for(history, max(total_steps - history.last_step, 0.0), factors)


def seconds_for(history: History, more_steps: float, factors: Factors = SHARED_CORE) -> Band | None:
    """Return the time for `more_steps`; None if the history is too short or the number is not finite."""
    if len(history.steps) < LEAST_WINDOWS or not np.isfinite(more_steps):
        return None
    return factors.around(_present_pace(history) * max(more_steps, 0.0))


def remaining_of(table: GrowthTable, total_steps: npt.ArrayLike, factors: Factors = SHARED_CORE) -> Bands:
    """Compute `remaining_seconds` of every row."""
    windows = table.windows
    more = np.maximum(np.asarray(total_steps, dtype=np.float64) - table.last_step, 0.0)
    closed = windows.closed_count
    is_known = (closed >= LEAST_WINDOWS) & np.isfinite(more)
    forecast = np.where(is_known, _pace(*windows.middles(), closed) * more, np.nan)
    return Bands(*(forecast * factor for factor in factors))


def _present_pace(history: History) -> float:
    steps, seconds = history.steps, history.seconds
    return float(_pace(steps[:, None], seconds[:, None], np.array([len(steps)]))[0])


def _pace(steps: Floats, seconds: Floats, filled: Ints) -> Floats:
    """Return seconds per step just before the last window, for each number of windows; `steps` and `seconds` have one
    column per entry of `filled`, or one for all."""
    column = np.arange(len(filled)) if steps.shape[1] > 1 else 0
    last = np.maximum(filled - 1, 1)
    since = np.minimum((last * (1 - _RECENT)).astype(np.int64), last - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pace: Floats = (seconds[last, column] - seconds[since, column]) / (steps[last, column] - steps[since, column])
    return pace


# Time to a value.


@dataclass(frozen=True)
class GrowthCurve:
    """Many falling curves floor + drop x shape(step), weighted by their fit to the best values so far.

    Lower is better; values of a metric that rises are negated by `sign`.
    """

    scale: Floats
    power: Floats
    floor: Floats
    drop: Floats
    weight: Floats
    improved: float
    """Difference between the first and the best value."""
    margin: float
    """Widening of bands, in the unit of the metric."""
    now_step: float
    now_value: float
    sign: int

    def value_at(self, step: float) -> Band:
        """Return the best value expected by this step."""
        expected = self.floor + self.drop * _shape(self.scale, self.power, np.array([step]))[:, 0]
        low, middle, high = self._quantiles(np.minimum(expected, self.now_value))
        low, high = low - self.margin, min(high + self.margin, self.now_value)
        return Band(low, middle, high) if self.sign > 0 else Band(-high, -middle, -low)

    def steps_to(self, target: float) -> Band:
        """Return the steps from now until the best value reaches `target`; infinite where curves end above it."""
        goal = self.sign * target
        if goal >= self.now_value:
            return Band(0.0, 0.0, 0.0)
        soon, middle, late = (self._steps_until(self._part(goal + by)) for by in (self.margin, 0.0, -self.margin))
        return Band(soon.low, middle.middle, late.high)

    def _part(self, goal: float) -> Floats:
        """Return the fraction of each curve's drop that is left where it passes the goal."""
        return (goal - self.floor) / np.where(self.drop > 0, self.drop, np.inf)

    def _steps_until(self, part: Floats) -> Band:
        """Return the steps from now until each curve has this fraction of its drop left."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            by_power = np.where(part > 0, np.maximum(part, 0.0) ** (-1 / self.power) - 1, np.inf)
            steps = np.where(np.isinf(self.power), np.where(part > 0, -np.log(np.maximum(part, 0.0)), np.inf), by_power)
        return Band(*self._quantiles(np.maximum(steps * self.scale - self.now_step, 0.0)))

    def _quantiles(self, outcomes: Floats) -> tuple[float, float, float]:
        order = np.argsort(outcomes)
        below = np.cumsum(self.weight[order])
        at = np.minimum(np.searchsorted(below, (0.1, 0.5, 0.9)), len(order) - 1)
        low, middle, high = outcomes[order][at]
        return float(low), float(middle), float(high)


def growth_curve(history: History, margin: float = MARGIN) -> GrowthCurve | None:
    """Fit curves to the best value over steps; None if the history is too short.

    The floor of a metric that was never negative is at least 0, as for losses.
    """
    steps, sign = history.steps, int(history.direction)
    if len(steps) < LEAST_WINDOWS:
        return None
    best = np.minimum.accumulate(sign * history.values)
    unit = float(np.abs(best).max()) or 1.0  # squares of huge or tiny metrics would leave the range of floats
    best /= unit
    scale, power = (part.ravel() for part in np.meshgrid(steps[-1] * np.geomspace(1 / 60, 4, 25), np.array(_SHAPES)))
    shape = _shape(scale, power, steps)
    recency = np.arange(1.0, len(steps) + 1)
    recency /= recency.sum()
    middle, mean = shape @ recency, float(best @ recency)
    away = shape - middle[:, None]
    spread = np.maximum((away**2) @ recency, np.finfo(np.float64).tiny)
    drop = np.maximum((away * (best - mean)) @ recency / spread, 0.0)
    floor = mean - drop * middle
    if best.min() >= 0:
        through_zero = (shape * best) @ recency / np.maximum((shape**2) @ recency, np.finfo(np.float64).tiny)
        drop, floor = np.where(floor < 0, through_zero, drop), np.maximum(floor, 0.0)
    squares = ((best - floor[:, None] - drop[:, None] * shape) ** 2) @ recency
    blurred = squares + (_BLUR * (best[0] - best[-1])) ** 2 + np.finfo(np.float64).tiny
    weight = (blurred / blurred.min()) ** (-min(len(steps), _EVIDENCE) / 2)
    weight /= weight.sum()
    improved, now = unit * float(best[0] - best[-1]), unit * float(best[-1])
    wider = max(margin, 0.0) * improved
    return GrowthCurve(scale, power, unit * floor, unit * drop, weight, improved, wider, float(steps[-1]), now, sign)


def _shape(scale: Floats, power: Floats, steps: Floats) -> Floats:
    """Return curves that fall from 1 at step 0 to 0, one row per curve, one column per step."""
    along = steps / scale[:, None]
    finite = np.where(np.isinf(power), 1.0, power)[:, None]
    return np.where(np.isinf(power)[:, None], np.exp(-along), (1 + along) ** -finite)


def fit_margin(misses: npt.ArrayLike, jobs: npt.ArrayLike) -> float:
    """Return the margin that would have contained 80 % of the values of other jobs.

    `misses` are distances outside a band without margin (negative: inside), as a fraction of the improvement so far.
    """
    values, job = np.asarray(misses, dtype=np.float64), np.asarray(jobs, dtype=np.int64)
    names, number, times = np.unique(job, return_inverse=True, return_counts=True)
    return max(_quantile(values, 1.0 / times[number], _HELD, len(names)), 0.0)


def seconds_to(history: History, target: float, factors: Factors = SHARED_CORE, margin: float = MARGIN) -> Band | None:
    """Return the time until the metric reaches `target`: the steps of the growth curve at the current pace.

    Both the number of steps and the pace are uncertain. The wider of the two sets the band and the other is taken at
    its middle; both at their ends would contain far more than 80 %.
    """
    curve = growth_curve(history, margin)
    if curve is None:
        return None
    steps, pace = curve.steps_to(target), _present_pace(history)
    by_steps = steps.times(pace * factors.middle)
    by_pace = factors.around(steps.middle * pace)
    return Band(min(by_steps.low, by_pace.low), by_steps.middle, max(by_steps.high, by_pace.high))
