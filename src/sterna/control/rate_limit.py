"""A minimum interval between rounds, for clusters where every change is expensive for the jobs.

The first event after a quiet period starts a round at once; events within the interval are handled by one round at its
end. No event is lost, because every round looks at the whole snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.control.backend import Backend
from sterna.errors import Bug
from sterna.model.plan import Decision, Outcome
from sterna.model.snapshot import NEVER, Snapshot


class RateLimited:
    """A backend whose rounds are at least `min_interval_seconds` apart; 0: no limit."""

    def __init__(self, backend: Backend, min_interval_seconds: float) -> None:
        self._backend = backend
        self._last_round = -NEVER
        self.set_interval(min_interval_seconds)

    def set_interval(self, min_interval_seconds: float) -> None:
        if not 0 <= min_interval_seconds < NEVER:
            raise Bug(f"a rate limit of {min_interval_seconds} s")
        self._min_interval_seconds = min_interval_seconds

    def observe(self) -> Snapshot:
        snapshot = self._backend.observe()
        self._last_round = snapshot.now
        return snapshot

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        return self._backend.apply(decision)

    def wait(self, until: float) -> bool:
        """Sleep until the next event, and then until the interval has passed."""
        if not self._backend.wait(until):
            return False
        if not self._min_interval_seconds:
            return True
        allowed = self._last_round + self._min_interval_seconds
        while self._backend.observe().now < allowed:
            if not self._backend.wait(allowed):
                return False
        return True
