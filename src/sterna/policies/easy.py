"""`easy`: EASY backfill, with a reservation for the first waiting job."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.engine.ordering.backfill import start_with_reservations
from sterna.rules import Snapshot, Target, knob, policy


@policy("easy", "EASY")
@dataclass(frozen=True)
class Easy:
    """Submit order without stops; a later job starts early only if the first waiting job is not expected to start
    later for it."""

    reservations: int = knob(1, "Number of waiting jobs that later ones must not delay.", least=1)

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all)
        return Target(start_with_reservations(snapshot, self.reservations))
