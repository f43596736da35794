"""Kubernetes quantities as whole numbers: `500m`, `8Gi`, `1e3`, `2`.

Exact, and rounded up as Kubernetes does. Text that is no quantity raises `ValueError`: the caller knows the field, and
a malformed amount on an unmanaged object must not stop the operator. Amounts are capped, so that sums fit into the
columns.
"""

from __future__ import annotations

import re
from functools import lru_cache

MOST = 1 << 53
"""Cap: nine petabytes, or as many thousandths."""

_QUANTITY = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64


def count_of(quantity: str | int | float) -> int:
    """Whole units: bytes, devices, pods."""
    return _to_power(quantity if isinstance(quantity, str) else repr(quantity), 0)


def milli_of(quantity: str | int | float) -> int:
    """Thousandths: of a core, of a device."""
    return _to_power(quantity if isinstance(quantity, str) else repr(quantity), 3)


@lru_cache(maxsize=4096)
def _to_power(text: str, exponent: int) -> int:
    """The quantity times ten to that power, rounded away from zero."""
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _LONGEST and text.isascii() else None
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"'{text[:40]}' is no quantity such as 2, 500m or 8Gi")
    sign, whole, fraction = match[1], match[2] or "", match[3] or ""
    power = exponent - len(fraction)
    if match[5]:
        power += _DECIMAL[match[5]]
    elif match[6]:
        power += int(match[6])
    digits = int(whole + fraction) << _BINARY.get(match[4] or "", 0)
    amount: int = digits * 10**power if power >= 0 else -(-digits // 10**-power)
    return -min(amount, MOST) if sign == "-" else min(amount, MOST)
