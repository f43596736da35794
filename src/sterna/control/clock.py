"""Time for worlds that are real: seconds since 1970 that rules can rely on, whatever is done to the machine's clock.

Simulated worlds have a clock of their own; nothing that decides reads any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SLEW = 0.5
"""How much faster or slower than time our clock may go to catch up with the machine's."""


def steady_seconds() -> float:
    """Goes on while the machine sleeps, where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def steady_clock(
    wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_seconds
) -> Callable[[], float]:
    """Seconds since 1970 that run on at about their own pace, whatever is done to the machine's clock: where the two
    differ, this one goes a little faster or slower until they meet, and never stands still nor leaps."""
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
