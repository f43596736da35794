"""A limit on repeated messages by time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class RepeatLimit:
    """Admits each distinct message at most once per `interval_seconds`."""

    def __init__(self, interval_seconds: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        self._interval_seconds, self._clock = interval_seconds, clock
        self._admitted_at: dict[str, float] = {}

    def admits(self, message: str) -> bool:
        now = self._clock()
        self._admitted_at = {key: at for key, at in self._admitted_at.items() if now - at < self._interval_seconds}
        if message in self._admitted_at:
            return False
        self._admitted_at[message] = now
        return True
