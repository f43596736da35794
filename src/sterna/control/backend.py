"""`Backend`: the interface of a cluster to the round loop.

Clusters differ by their backend, never by an `if` in the loop or in a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sterna.model.plan import Decision, Outcome
from sterna.model.snapshot import Snapshot


class Backend(Protocol):
    def observe(self) -> Snapshot:
        """Return the current state. Columns of the previous snapshot are no longer valid."""
        ...

    def apply(self, decision: Decision, /) -> Sequence[Outcome]:
        """Apply the plan of a decision about the last snapshot, and publish its reasons where users read them.

        Idempotent. Returns one outcome per action. Called in every round, also with an empty plan. A backend without
        readers of reasons leaves `decision.reasons` alone: they are computed on first access.
        """
        ...

    def wait(self, until: float, /) -> bool:
        """Sleep until the next event, at most until `until`; return False if there will never be another."""
        ...
