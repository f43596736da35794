"""A wall clock for real clusters that neither jumps nor stops when the machine's clock is changed.

Simulated clusters have a clock of their own; decisions read no clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SLEW = 0.5
"""Largest relative deviation from real time while catching up with the machine's clock."""


def steady_seconds() -> float:
    """Return seconds of a clock that also runs while the machine is suspended, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def steady_clock(
    wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_seconds
) -> Callable[[], float]:
    """Return a clock in seconds since 1970. Where it differs from the machine's clock, it runs a little faster or
    slower until they agree, and never jumps or stops."""
    told, at = wall(), steady()
    lock = threading.Lock()

    def now() -> float:
        nonlocal told, at
        with lock:
            moment = steady()
            passed = max(0.0, moment - at)
            gap = wall() - (told + passed)
            told += passed + max(-_SLEW * passed, min(gap, _SLEW * passed))
            at = moment
            return told

    return now
