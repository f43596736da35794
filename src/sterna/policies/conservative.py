"""`conservative`: conservative backfill, with a reservation for every waiting job."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.engine.ordering.backfill import start_with_reservations
from sterna.rules import Snapshot, Target, policy


@policy("conservative")
@dataclass(frozen=True)
class Conservative:
    """Submit order without stops; a later job starts early only if no earlier one is expected to start later for it."""

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all)
        return Target(start_with_reservations(snapshot, len(snapshot.jobs)))
