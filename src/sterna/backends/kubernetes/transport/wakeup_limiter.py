"""Waiting for many connections at once without waking up for each: what comes in one by one is seen to together.

For `client.py` in an operator. Under load a reply or an event comes every few milliseconds, and waking up for it costs
more than reading it. The first few after a quiet while are seen to at once, so whoever waits for a single answer has it
as soon as ever; nothing is dropped or reordered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from selectors import DefaultSelector, SelectorKey

_AT_ONCE = 3
"""So often it may wake up at once after a quiet while: for a question, for its answer, and once more."""


class GatheringSelector(DefaultSelector):
    """Lets on the average at least so many seconds pass between two times that it wakes up somebody who sleeps."""

    def __init__(
        self,
        least_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._least_seconds, self._clock, self._sleep = least_seconds, clock, sleep
        self._may_wake_at = -math.inf

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is not None and timeout <= 0.0:  # nobody sleeps: there is something to do already
            return super().select(timeout)
        pause_seconds = self._may_wake_at - self._clock()
        if pause_seconds > 0.0:
            pause_seconds = pause_seconds if timeout is None else min(pause_seconds, timeout)
            self._sleep(pause_seconds)
            timeout = None if timeout is None else timeout - pause_seconds
        ready = super().select(timeout)
        quiet_since = self._clock() - (_AT_ONCE - 1) * self._least_seconds
        self._may_wake_at = max(self._may_wake_at, quiet_since) + self._least_seconds
        return ready
