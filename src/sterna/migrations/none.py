"""`none`: no job moves."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.rules import Moves, Snapshot, migration


@migration("none")
@dataclass(frozen=True)
class NoMigration:
    """No job is moved."""

    def __call__(self, snapshot: Snapshot) -> Moves:
        return Moves()
