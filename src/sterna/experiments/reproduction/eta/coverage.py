"""Coverage of forecast bands: fraction of outcomes inside, width of the bands, error of their middles.

Coverage is reported with the width, because a band from 0 to infinity holds every outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sterna.model.eta import Band

LOWEST, HIGHEST = 0.7, 0.9
"""Range of coverage in which an 80 % band counts as honest."""

_EQUAL = 1e-9
"""Relative tolerance at the ends of a band."""


class BandForecast(NamedTuple):
    """A forecast and its outcome."""

    band: Band
    outcome: float

    @property
    def holds(self) -> bool:
        slack = _EQUAL * abs(self.outcome)
        return self.band.low - slack <= self.outcome <= self.band.high + slack

    @property
    def has_end(self) -> bool:
        return bool(np.isfinite(self.band.high))


class Coverage(NamedTuple):
    """Coverage of a case, in percent."""

    held: float
    width: float
    """Mean width of the bands that have an end, relative to the middle of each."""
    span: float
    """Mean width that is not divided by the middle, for values other than times."""
    error: float
    """Median distance of the outcome from the middle, relative to the middle."""
    endless: float
    """Fraction of bands without an end."""
    outcomes: int

    @property
    def is_honest(self) -> bool:
        return 100 * LOWEST <= self.held <= 100 * HIGHEST


def coverage_of(groups: Sequence[Sequence[BandForecast]]) -> Coverage:
    """Compute the coverage; each group with forecasts has the same weight."""
    held = [np.mean([forecast.holds for forecast in group]) for group in groups if group]
    made = [forecast for group in groups for forecast in group]
    ended = [(f.band.high - f.band.low, f.band.middle) for f in made if f.has_end]
    errors = [abs(f.outcome / f.band.middle - 1) for f in made if 0 < f.band.middle < np.inf]
    widths = [span / middle for span, middle in ended if middle > 0]
    return Coverage(
        held=100 * float(np.mean(held)) if held else 0.0,
        width=100 * float(np.mean(widths)) if widths else 0.0,
        span=100 * float(np.mean([span for span, _ in ended])) if ended else 0.0,
        error=100 * float(np.median(errors)) if errors else 0.0,
        endless=100 * (1 - len(ended) / len(made)) if made else 0.0,
        outcomes=len(made),
    )
