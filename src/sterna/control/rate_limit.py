"""A rate limit between rounds, around any world: for clusters where every change costs its jobs dearly.

The first event after a quiet time is answered at once; those that follow within the limit are answered together when it
has passed. None is lost, because each round looks at everything. What a round decides is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.control.backend import Backend
from sterna.errors import Bug
from sterna.model.plan import Action, Outcome
from sterna.model.snapshot import NEVER, Snapshot


class RateLimited:
    """A backend whose rounds are at least `least_seconds` apart."""

    def __init__(self, backend: Backend, least_seconds: float) -> None:
        if not 0 <= least_seconds < NEVER:
            raise Bug(f"a rate limit of {least_seconds} s")
        self._backend = backend
        self._least_seconds = least_seconds
        self._last_round = -NEVER

    def observe(self) -> Snapshot:
        snapshot = self._backend.observe()
        self._last_round = snapshot.now
        return snapshot

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        return self._backend.apply(actions)

    def wait(self, until: float) -> bool:
        """Sleep until something happens, and on until the limit has passed."""
        if not self._backend.wait(until):
            return False
        allowed = self._last_round + self._least_seconds
        while self._backend.observe().now < allowed:
            if not self._backend.wait(allowed):
                return False
        return True
