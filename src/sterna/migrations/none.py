"""`none`: no job moves."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.engine.registry import Moves, migration
from sterna.model.snapshot import Snapshot


@migration("none")
@dataclass(frozen=True)
class NoMigration:
    """No job is moved."""

    def __call__(self, snapshot: Snapshot) -> Moves:
        return Moves()
