"""Domains of numbers with their wording, shared by all loaders and generators.

A domain checks one column; `make_trace` checks relations between columns (`min_workers` below `max_workers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatColumn = npt.NDArray[np.float64]
IntColumn = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]

EXACT_LIMIT = 2.0**53
"""Above it floats cannot represent every whole number."""


@dataclass(frozen=True, slots=True)
class Domain:
    words: str
    """Completes the sentence "found x, expected ..."."""
    holds: Callable[[FloatColumn], BoolColumn]
    is_whole: bool = False
    """True if the numbers are stored as integers."""
    most: float = np.inf
    """Upper bound: larger numbers are mistakes, and their sums would overflow."""

    def first_outside(self, values: FloatColumn) -> int | None:
        """Return the first row that is not a finite number of this domain."""
        outside = ~(np.isfinite(values) & (values <= self.most) & self.holds(values))
        return int(np.argmax(outside)) if outside.any() else None

    def describe_valid(self, value: float) -> str:
        """Describe the numbers that are accepted, given a value that is not."""
        if not self.most < value < np.inf:
            return self.words
        most = re.sub(r"e\+0?", "e", f"{self.most:g}")
        return f"{'a whole number' if self.is_whole else 'a number'} of at most {most}"


def _is_whole(values: FloatColumn) -> BoolColumn:
    whole: BoolColumn = values == np.floor(values)
    return whole & (np.abs(values) < EXACT_LIMIT)


LARGEST = 1e15
"""Upper bound of times and amounts: thirty million years in seconds."""
MOST_COUNTED = 1e9

NOT_NEGATIVE = Domain("a number of at least 0", lambda values: values >= 0, most=LARGEST)
POSITIVE = Domain("a number above 0", lambda values: values > 0, most=LARGEST)
WHOLE = Domain("a whole number of at least 0", lambda values: _is_whole(values) & (values >= 0), is_whole=True)
INTEGER = Domain(
    "a whole number",
    lambda values: _is_whole(values) & (values >= -MOST_COUNTED),
    is_whole=True,
    most=MOST_COUNTED,
)
COUNT = Domain("a whole number of at least 1", lambda values: _is_whole(values) & (values >= 1), True, MOST_COUNTED)
DEVICES = Domain(
    "a whole number of at least 1, or a fraction between 0 and 1",
    lambda values: (values > 0) & ((values < 1) | _is_whole(values)),
    most=1e6,
)


def plain(value: float) -> str:
    """Format a number as the shortest text that reads back as the same number: `60`, `0.25`, `1e+300`."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < EXACT_LIMIT else repr(number)
