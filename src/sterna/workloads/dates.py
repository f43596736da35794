"""Dates of published traces (`2017-10-09 07:01:55`), converted to seconds a column at a time.

Clocks are not converted: the traces name no time zone, and the hour that daylight saving repeats stays
ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sterna.workloads.domain import FloatColumn

BLANKS = frozenset({"", "none", "nan", "null", "na", "nat", "\\n"})
"""Spellings of a missing value in published files, in lower case."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")


class Moments(NamedTuple):
    seconds: FloatColumn
    """Seconds since 1970; NaN where the date is blank."""
    unreadable: int | None
    """First row that is neither a date nor blank; `seconds` is invalid then."""


def read_dates(cells: Sequence[str]) -> Moments:
    texts = ["NaT" if cell.strip().lower() in BLANKS else cell.strip() for cell in cells]
    for row, text in enumerate(texts):
        if text != "NaT" and not _DATE.fullmatch(text):
            return Moments(np.empty(0), row)
    try:
        moments = np.array(texts, dtype="datetime64[us]")
    except ValueError:
        return Moments(np.empty(0), next(row for row, text in enumerate(texts) if not _exists(text)))
    return Moments(np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6), None)


def date_text(seconds: float) -> str:
    """Format a moment, to the second; the inverse of `read_dates`."""
    return str(np.datetime64(int(seconds), "s")).replace("T", " ")


def _exists(text: str) -> bool:
    """Return False for dates that the calendar lacks, such as 29 February 2021."""
    try:
        np.datetime64(text, "us")
    except ValueError:
        return False
    return True
