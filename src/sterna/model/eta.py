"""How long a job still needs: from its speed to its last step, and from its growth curve to a value it shall reach.

For whoever shows or weighs remaining time. Every answer is a band that is meant to hold eight outcomes in ten. How wide
it must be is not assumed but learned from what became of the same forecast in other jobs (`learned`, `learned_until`):
if jobs are alike in that, the band holds by construction. A speed-up from more workers is the caller's to apply.
Whether the bands hold on recorded trainings and on replayed traces is measured by the `eta` study, not here.
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

LEAST_WINDOWS = 4
"""Below this many windows nothing is said."""

LEAST_JOBS = 4
"""With fewer other jobs to learn from no band could be kept."""

_HELD = 0.8
"""Part of the outcomes that a band is to hold."""
_ENOUGH = 9
"""From so many jobs on, either end of a band has outcomes of its own beyond it."""

_RECENT = 0.4
"""Part of the windows from which the present pace is taken."""

_SHAPES = (0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
"""Powers of the curves that are tried, from a slow power law to an exponential."""
_EVIDENCE = 8.0
"""Windows lie on no curve exactly and err together, so all of them weigh as much as this many that err alone."""
_BLUR = 0.01
"""Part of a job's whole range within which curves are not told apart."""

MARGIN = 0.07
"""What a band of values is widened by on either side, as a part of the job's improvement so far: what the eight
recorded trainings call for at their half. `learned_margin` finds it for other jobs."""


@dataclass(frozen=True, slots=True)
class Band:
    """A prediction and the range that should hold eight outcomes in ten; without end if it may never happen."""

    low: float
    middle: float
    high: float

    def __contains__(self, outcome: float) -> bool:
        return self.low <= outcome <= self.high

    def times(self, factor: float) -> Band:
        return Band(self.low * factor, self.middle * factor, self.high * factor)


class Bands(NamedTuple):
    """The same for many jobs, one entry each; no number where nothing is said."""

    low: Floats
    middle: Floats
    high: Floats


class Factors(NamedTuple):
    """What a forecast at the present pace is multiplied with to become a band."""

    low: float
    middle: float
    high: float

    def around(self, forecast: float) -> Band:
        return Band(self.low * forecast, self.middle * forecast, self.high * forecast)


SHARED_CORE = Factors(0.75, 1.04, 1.33)
"""Of eight recorded trainings on a core that they shared with others: for a place that has no finished jobs yet."""


# What became of earlier forecasts.


def factors_of(errors: npt.ArrayLike, jobs: npt.ArrayLike | None = None) -> Factors | None:
    """From logarithms of outcome over forecast, at least one of each of some jobs, which all weigh the same.

    The ranks are those that an outcome of one more job would fall between eight times in ten, if it is like the others.
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
    """Between neighbours on a straight line; with `jobs`, what one more job will be below with probability `part`."""
    order = values.argsort(kind="stable")
    below = (weight[order].cumsum() - weight[order] / 2) / weight.sum()
    at = ((jobs + 1) * part - 0.5) / jobs if jobs else part
    return float(np.interp(at, below, values[order]))


def learned_until(now: float, made: Floats, forecast: Floats, ended: Floats) -> Factors | None:
    """From forecasts of remaining time that were `made` before now. A job that has not `ended` by now has taken at
    least as long as until now, and counts so: looking only at those that have ended would make everybody quick."""
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


def learned(finished: Sequence[History], seen: float = 0.5) -> Factors | None:
    """From jobs that have finished: how far off each would have been, had it been asked at `seen` of a life that ends
    at any of its windows. Nothing where there are too few."""
    errors = [_errors(history, 1 / seen - 1) for history in finished if len(history.steps) >= LEAST_WINDOWS]
    if not errors:
        return None
    return factors_of(np.concatenate(errors), np.repeat(np.arange(len(errors)), [len(e) for e in errors]))


def _errors(history: History, reach: float) -> Floats:
    """Log of outcome over forecast, made at each window for `reach` times the job's past ahead of it."""
    steps, seconds = history.steps, history.seconds
    last = int(steps.searchsorted(steps[-1] / (1 + reach), "right")) if len(steps) else 0
    at = np.arange(LEAST_WINDOWS - 1, last)
    ahead = reach * steps[at]
    took = np.interp(steps[at] + ahead, steps, seconds) - seconds[at]
    errors: Floats = np.log(took / (ahead * _pace(steps[:, None], seconds[:, None], at + 1)))
    return errors


# Time to a step.


def remaining_seconds(history: History, total_steps: float, factors: Factors = SHARED_CORE) -> Band | None:
    """Time until the last step at the present speed; nothing is said where the history is too short."""
    return seconds_for(history, max(total_steps - history.last_step, 0.0), factors)


def seconds_for(history: History, more_steps: float, factors: Factors = SHARED_CORE) -> Band | None:
    """Time for so many more steps; nothing is said of a number that is none."""
    if len(history.steps) < LEAST_WINDOWS or not np.isfinite(more_steps):
        return None
    return factors.around(_present_pace(history) * max(more_steps, 0.0))


def remaining_of(table: GrowthTable, total_steps: npt.ArrayLike, factors: Factors = SHARED_CORE) -> Bands:
    """`remaining_seconds` of every row at once."""
    filled, steps, seconds = table.windows
    more = np.maximum(np.asarray(total_steps, dtype=np.float64) - table.last_step, 0.0)
    is_known = (filled >= LEAST_WINDOWS) & np.isfinite(more)
    forecast = np.where(is_known, _pace(steps, seconds, filled) * more, np.nan)
    return Bands(*(forecast * factor for factor in factors))


def _present_pace(history: History) -> float:
    steps, seconds = history.steps, history.seconds
    return float(_pace(steps[:, None], seconds[:, None], np.array([len(steps)]))[0])


def _pace(steps: Floats, seconds: Floats, filled: Ints) -> Floats:
    """Seconds a step, as they were just before the last window, for each number of windows; a column belongs to one job
    or the one column to all."""
    column = np.arange(len(filled)) if steps.shape[1] > 1 else 0
    last = np.maximum(filled - 1, 1)
    since = np.minimum((last * (1 - _RECENT)).astype(np.int64), last - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pace: Floats = (seconds[last, column] - seconds[since, column]) / (steps[last, column] - steps[since, column])
    return pace


# Time to a value.


@dataclass(frozen=True)
class GrowthCurve:
    """Many falling curves floor + drop x shape(step), weighted by how well each fits the best values so far.

    Lower is better here, whatever the metric: `sign` says how to turn it back.
    """

    scale: Floats
    power: Floats
    floor: Floats
    drop: Floats
    weight: Floats
    improved: float
    """How much better the best value is than the first."""
    margin: float
    """What bands are widened by, in the metric's own unit."""
    now_step: float
    now_value: float
    sign: int

    def value_at(self, step: float) -> Band:
        """The best value by then."""
        expected = self.floor + self.drop * _shape(self.scale, self.power, np.array([step]))[:, 0]
        low, middle, high = self._quantiles(np.minimum(expected, self.now_value))
        low, high = low - self.margin, min(high + self.margin, self.now_value)
        return Band(low, middle, high) if self.sign > 0 else Band(-high, -middle, -low)

    def steps_to(self, target: float) -> Band:
        """Steps from now until the best value is at least as good as `target`; endless where curves end above it."""
        goal = self.sign * target
        if goal >= self.now_value:
            return Band(0.0, 0.0, 0.0)
        soon, middle, late = (self._steps_until(self._part(goal + by)) for by in (self.margin, 0.0, -self.margin))
        return Band(soon.low, middle.middle, late.high)

    def _part(self, goal: float) -> Floats:
        """What is left of each curve's drop where it passes the goal."""
        return (goal - self.floor) / np.where(self.drop > 0, self.drop, np.inf)

    def _steps_until(self, part: Floats) -> Band:
        """Steps from now until each curve has come down to this part of its drop."""
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
    """Fit what the best value does over steps; nothing is said where the history is too short.

    A metric that never was negative is taken to have its floor at 0 or above, as losses have.
    """
    steps, sign = history.steps, int(history.direction)
    if len(steps) < LEAST_WINDOWS:
        return None
    best = np.minimum.accumulate(sign * history.values)
    unit = float(np.abs(best).max()) or 1.0  # so that neither huge nor tiny metrics leave the range of squares
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
    """1 at step 0, falling to 0: a row for each curve, a column for each step."""
    along = steps / scale[:, None]
    finite = np.where(np.isinf(power), 1.0, power)[:, None]
    return np.where(np.isinf(power)[:, None], np.exp(-along), (1 + along) ** -finite)


def learned_margin(misses: npt.ArrayLike, jobs: npt.ArrayLike) -> float:
    """The margin that would have held eight in ten, from how far values of other jobs lay outside a band without one
    (negative: inside), as a part of the improvement until then."""
    values, job = np.asarray(misses, dtype=np.float64), np.asarray(jobs, dtype=np.int64)
    names, number, times = np.unique(job, return_inverse=True, return_counts=True)
    return max(_quantile(values, 1.0 / times[number], _HELD, len(names)), 0.0)


def seconds_to(history: History, target: float, factors: Factors = SHARED_CORE, margin: float = MARGIN) -> Band | None:
    """Time until a value is reached: the steps of the growth curve at the present pace.

    How many steps and how long each takes are both uncertain; the wider of the two makes the band, the other is taken
    at its middle, for both at their ends at once would hold far more than eight in ten.
    """
    curve = growth_curve(history, margin)
    if curve is None:
        return None
    steps, pace = curve.steps_to(target), _present_pace(history)
    by_steps = steps.times(pace * factors.middle)
    by_pace = factors.around(steps.middle * pace)
    return Band(min(by_steps.low, by_pace.low), by_steps.middle, max(by_steps.high, by_pace.high))
