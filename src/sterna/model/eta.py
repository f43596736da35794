"""How long a job still needs: from its speed to its last step, and from its growth curve to a value it shall reach.

For whoever shows or weighs remaining time. Every answer is a `Band` that is meant to hold eight outcomes in ten;
`time_coverage` and `value_coverage` measure on recorded curves whether it does. The bands know a job's own past only:
that a neighbour will start or a node will be lost is not foreseen, and a speed-up from more workers is the caller's to
apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.model.growth import History, Report
from sterna.model.speedup import Floats

LEAST_WINDOWS = 4
"""Below this many windows nothing is said."""

_Z = 1.2816
"""80 % of a normal distribution lie within so many standard deviations."""

_PRIOR_SPREAD = 0.15
"""Relative error of a pace that a job with little past is assumed to have, and how many past errors that weighs."""
_PRIOR_WEIGHT = 1.0
_MOST_ERRORS = 8.0
"""Past errors overlap, so however many there are they count as at most this many."""

_RECENT = 0.4
"""Part of the windows from which the present pace is taken."""

_SHAPES = (0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
"""Powers of the curves that are tried, from a slow power law to an exponential."""
_EVIDENCE = 8.0
"""Windows lie on no curve exactly and err together, so all of them weigh as much as this many that err alone."""
_BLUR = 0.01
"""Part of a job's whole range within which curves are not told apart."""
_MARGIN = 0.25
"""Part of the typical misfit that is added to either side of a band of values."""


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


def remaining_seconds(history: History, total_steps: float) -> Band | None:
    """Time until the last step at the present speed; nothing is said where the history is too short."""
    return seconds_for(history, max(total_steps - history.last_step, 0.0))


def seconds_for(history: History, more_steps: float) -> Band | None:
    """Time for so many more steps. How wide the band is, the job's own past says: its pace is predicted from earlier
    points of its history in the same way, as far ahead in proportion, and compared with what came."""
    steps, seconds = history.steps, history.seconds
    if len(steps) < LEAST_WINDOWS:
        return None
    if more_steps <= 0:
        return Band(0.0, 0.0, 0.0)
    middle = _pace(steps, seconds, len(steps) - 1) * more_steps
    reach = more_steps / (steps[-1] - steps[0])
    factor = float(np.exp(_Z * _spread(steps, seconds, reach)))
    return Band(middle / factor, middle, middle * factor)


def _pace(steps: Floats, seconds: Floats, at: int) -> float:
    """Seconds a step, as they were just before a window."""
    since = min(int(at * (1 - _RECENT)), at - 1)
    return float((seconds[at] - seconds[since]) / (steps[at] - steps[since]))


def _spread(steps: Floats, seconds: Floats, reach: float) -> float:
    """Standard error of the logarithm of a pace, `reach` times the job's past ahead."""
    last = len(steps) - 1
    errors = []
    for at in range(max(2, last // 8), last):
        ahead = reach * (steps[at] - steps[0])
        end = min(steps[at] + ahead, steps[last])
        if end - steps[at] < ahead / 2:
            break  # what came after this point is too short to compare with
        took = float(np.interp(end, steps, seconds)) - seconds[at]
        expected = _pace(steps, seconds, at) * (end - steps[at])
        if took > 0 and expected > 0:
            errors.append(np.log(took / expected))
    weight = min(len(errors), _MOST_ERRORS)
    seen = float(np.mean(np.square(errors))) if errors else 0.0
    return float(np.sqrt((_PRIOR_WEIGHT * _PRIOR_SPREAD**2 + weight * seen) / (_PRIOR_WEIGHT + weight)))


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
    misfit: float
    now_step: float
    now_value: float
    sign: int

    def value_at(self, step: float) -> Band:
        """The best value by then."""
        expected = self.floor + self.drop * _shape(self.scale, self.power, np.array([step]))[:, 0]
        low, middle, high = self._quantiles(np.minimum(expected, self.now_value))
        low, high = low - _MARGIN * self.misfit, min(high + _MARGIN * self.misfit, self.now_value)
        return Band(low, middle, high) if self.sign > 0 else Band(-high, -middle, -low)

    def steps_to(self, target: float) -> Band:
        """Steps from now until the best value is at least as good as `target`; endless where curves end above it."""
        goal = self.sign * target
        if goal >= self.now_value:
            return Band(0.0, 0.0, 0.0)
        return self._steps_until((goal - self.floor) / np.where(self.drop > 0, self.drop, np.inf))

    def steps_to_convergence(self, left: float = 0.05) -> Band:
        """Steps from now until only this part of the whole improvement is still to come."""
        return self._steps_until(np.where(self.drop > 0, left, 1.0))

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


def growth_curve(history: History) -> GrowthCurve | None:
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
    misfit, now = unit * float(np.sqrt(squares @ weight)), unit * float(best[-1])
    return GrowthCurve(scale, power, unit * floor, unit * drop, weight, misfit, float(steps[-1]), now, sign)


def _shape(scale: Floats, power: Floats, steps: Floats) -> Floats:
    """1 at step 0, falling to 0: a row for each curve, a column for each step."""
    along = steps / scale[:, None]
    finite = np.where(np.isinf(power), 1.0, power)[:, None]
    return np.where(np.isinf(power)[:, None], np.exp(-along), (1 + along) ** -finite)


def seconds_to(history: History, target: float) -> Band | None:
    """Time until a value is reached: the steps of the growth curve at the present pace."""
    curve = growth_curve(history)
    if curve is None:
        return None
    return curve.steps_to(target).times(_pace(history.steps, history.seconds, len(history.steps) - 1))


def time_coverage(recorded: Sequence[Report], seen: float = 0.5, targets: int = 20) -> float:
    """Part of the steps after a cut whose time lay in the band that was foretold at the cut."""
    before, after = _cut(recorded, seen, targets)
    history = History.of(before)
    hits = []
    for report in after:
        band = seconds_for(history, report.step - before[-1].step)
        hits.append(band is not None and report.seconds - before[-1].seconds in band)
    return float(np.mean(hits))


def value_coverage(recorded: Sequence[Report], seen: float = 0.5, targets: int = 20) -> float:
    """Part of the steps after a cut whose best value lay in the band that was foretold at the cut."""
    before, _ = _cut(recorded, seen, targets)
    history = History.of(before)
    curve = growth_curve(history)
    whole = history.extended(recorded[len(before) :])
    best = np.minimum.accumulate(int(whole.direction) * whole.values)
    later = np.flatnonzero(whole.steps > before[-1].step)
    if curve is None or not len(later):
        return 0.0
    chosen = later[:: max(len(later) // targets, 1)]
    reached = int(whole.direction) * np.minimum(best[chosen], curve.now_value)
    outcomes = zip(whole.steps[chosen], reached, strict=True)
    return float(np.mean([value in curve.value_at(step) for step, value in outcomes]))


def _cut(recorded: Sequence[Report], seen: float, targets: int) -> tuple[Sequence[Report], Sequence[Report]]:
    at = max(int(len(recorded) * seen), 1)
    stride = max((len(recorded) - at) // targets, 1)
    return recorded[:at], recorded[at + stride - 1 :: stride]
