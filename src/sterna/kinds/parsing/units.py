"""Amounts as people write them in a TrainingJob: `2`, `0.5` or `500m` devices, `8Gi` of memory, `30s` or `2h`."""

from __future__ import annotations

import math
import re

from sterna.kinds.parsing.fields import expectation_error

_BYTES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BYTES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]*)\s*", re.ASCII)
_MOST_UNITS = 1e6
"""Upper bound of cores or devices of one replica; more is a typing error."""
_MOST_BYTES = 2**60
_MOST_SECONDS = 1e10
"""About 300 years."""

Amount = str | int | float


def parse_thousandths(value: Amount | None, place: str) -> int:
    """CPU cores or devices, rounded up to thousandths; 0 if absent."""
    number, unit = _parse(value)
    if math.isnan(number) or unit not in ("", "m"):
        raise expectation_error(place, "a number such as 2, 0.5 or 500m", value)
    number /= 1000 if unit else 1
    if number > _MOST_UNITS:
        raise expectation_error(place, f"at most {_MOST_UNITS:,.0f}", value)
    return math.ceil(round(number * 1000, 6))


def parse_bytes(value: Amount | None, place: str) -> int:
    """Memory in bytes; 0 if absent."""
    number, unit = _parse(value)
    if math.isnan(number) or unit not in _BYTES:
        raise expectation_error(place, "memory such as 8Gi, 512Mi or a number of bytes", value)
    if number * _BYTES[unit] > _MOST_BYTES:
        raise expectation_error(place, "less memory than 1024Pi", value)
    return math.ceil(number * _BYTES[unit])


def parse_seconds(value: Amount, place: str) -> float:
    number, unit = _parse(value)
    if math.isnan(number) or unit not in _SECONDS:
        raise expectation_error(place, "seconds, or a time such as 30s, 5m or 2h", value)
    if number * _SECONDS[unit] > _MOST_SECONDS:
        raise expectation_error(place, f"at most {_MOST_SECONDS:.0e} seconds", value)
    return number * _SECONDS[unit]


def _parse(value: Amount | None) -> tuple[float, str]:
    """Number and unit; NaN if it is neither."""
    if value is None:
        return 0.0, ""
    match = _AMOUNT.fullmatch(str(value))
    return (float(match[1]), match[2]) if match else (math.nan, "")
