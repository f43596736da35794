"""Health of a running cluster: the watchdog of its round loop, and what the health endpoints report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

STALL_SECONDS = 120.0
"""Default for the time without progress after which a loop counts as stalled."""
ROUNDS_PER_STALL = 4
"""The loop runs at least this many rounds per stall time, also without events, so that idle and stalled differ."""


class HealthStatus(NamedTuple):
    """Result of a health check; `sentence` is the body of the HTTP reply."""

    is_ok: bool
    sentence: str


class HealthChecks(Protocol):
    """Checks behind `/healthz` and `/readyz`. Any thread may call them; they must not wait for the round loop."""

    def check_live(self) -> HealthStatus:
        """Fails when a restart of the process would help."""
        ...

    def check_ready(self) -> HealthStatus:
        """Fails while requests cannot be answered correctly yet."""
        ...


class LoopWatchdog:
    """Detects a loop that makes no progress. The loop calls `beat` after each step, other threads read the state."""

    def __init__(self, stall_seconds: float = STALL_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.stall_seconds, self._clock = stall_seconds, clock
        self._beat_at = clock()

    @property
    def period_seconds(self) -> float:
        """Longest time that the loop may wait between two rounds."""
        return self.stall_seconds / ROUNDS_PER_STALL

    def beat(self) -> None:
        self._beat_at = self._clock()

    @property
    def is_alive(self) -> bool:
        return self._clock() - self._beat_at < self.stall_seconds

    def check_live(self) -> HealthStatus:
        if self.is_alive:
            return HealthStatus(True, "ok")
        silent_seconds = self._clock() - self._beat_at
        return HealthStatus(False, f"The scheduling loop has not finished a round for {silent_seconds:.0f} s.")
