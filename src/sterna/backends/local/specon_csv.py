"""`distribution.csv`: where converged jobs were and where they went, in the form that SpeCon's tools read. DRAGON-87.

The header is theirs to the letter, misspelling included. A job that was looked at and kept has an empty last field; it
is told again only when a round of moves has passed.
"""

from __future__ import annotations

from pathlib import Path

from sterna.control.controller import Recorder
from sterna.model.cluster import ANYWHERE, Assignment
from sterna.model.growth import Growth
from sterna.model.plan import ActionKind, Decision
from sterna.model.snapshot import Snapshot

HEADER = "time,job,orginal_node,to_node\n"
_ROUND_SECONDS = 30.0


class Distribution:
    """A recorder that keeps the file, and hands every round on."""

    def __init__(self, path: Path, then: Recorder) -> None:
        self._path, self._then = path, then
        self._told: dict[int, float] = {}
        """When each job was last told of."""

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        self._then.record(snapshot, decision)
        rows = self._rows(snapshot, decision)
        if rows:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                if file.tell() == 0:
                    file.write(HEADER)
                file.writelines(rows)

    def _rows(self, snapshot: Snapshot, decision: Decision) -> list[str]:
        jobs, names = snapshot.jobs, snapshot.nodes.name
        moved = {action.row: action.after for action in decision.plan if action.kind is ActionKind.MIGRATE}
        converged = ((jobs.growth == Growth.CONVERGED) & (jobs.workers > 0)).nonzero()[0].tolist()
        rows = []
        for row in sorted({*moved, *converged}):
            key, assignment = jobs.key.item(row), snapshot.assignment_of(row)
            is_due = snapshot.now - self._told.get(key, -_ROUND_SECONDS) >= _ROUND_SECONDS
            if assignment.workers and assignment.workers[0][0] != ANYWHERE and (row in moved or is_due):
                self._told[key] = snapshot.now
                target = _name(names, moved[row]) if row in moved else ""
                rows.append(f"{snapshot.now!r},{jobs.name_of(row)},{_name(names, assignment)},{target}\n")
        return rows


def _name(names: object, assignment: Assignment) -> str:
    assert isinstance(names, tuple | list)
    return str(names[assignment.workers[0][0]])
