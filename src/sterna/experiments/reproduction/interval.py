"""Confidence interval of a mean over seeds, for studies that compare two runs seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_TAIL = 0.975


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval, by Student's t; infinite for a single seed."""

    mean: float
    low: float
    high: float
    seeds: int

    def describe(self, unit: str = "") -> str:
        """Format the interval for the note of a row: `95 %: -6.9 to -5.8`."""
        return "one seed: no interval" if self.seeds < 2 else f"95 %: {self.low:+.1f} to {self.high:+.1f}{unit}"


def interval_of(values: Sequence[float]) -> Interval:
    from scipy.special import stdtrit

    numbers = np.asarray(values, dtype=np.float64)
    mean, count = float(numbers.mean()), len(numbers)
    if count < 2:
        return Interval(mean, -np.inf, np.inf, count)
    reach = float(stdtrit(count - 1, _TAIL)) * float(numbers.std(ddof=1)) / count**0.5
    return Interval(mean, mean - reach, mean + reach, count)
