"""`distribution.csv`: the nodes of converged jobs and their moves, in the format that SpeCon's tools read.

The header is SpeCon's, including its misspelling. A converged job that stays has an empty last field, and is listed at
most once per `_INTERVAL_SECONDS`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sterna.model.cluster import ANYWHERE, Assignment
from sterna.model.growth import Growth
from sterna.model.plan import ActionKind, Decision
from sterna.model.snapshot import Snapshot

HEADER = "time,job,orginal_node,to_node\n"
MAX_ROWS = 10_000
"""Rows that `SpeconCsvBuffer` keeps."""
_INTERVAL_SECONDS = 30.0


class SpeconCsv:
    """Round observer that writes rows by `append`."""

    def __init__(self, append: Callable[[list[str]], None]) -> None:
        self._append = append
        self._listed_at: dict[int, float] = {}
        """Time of the last row of each job."""

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        jobs, now = snapshot.jobs, snapshot.now
        moved = {action.row: action.after for action in decision.plan if action.kind is ActionKind.MIGRATE}
        converged = ((jobs.growth == Growth.CONVERGED) & (jobs.workers > 0)).nonzero()[0].tolist()
        rows = []
        for row in sorted({*moved, *converged}):
            key = jobs.key.item(row)
            origin = _node(snapshot, snapshot.assignment_of(row))
            target = _node(snapshot, moved[row]) if row in moved else ""
            if origin and (target or now - self._listed_at.get(key, -_INTERVAL_SECONDS) >= _INTERVAL_SECONDS):
                self._listed_at[key] = now
                rows.append(_row(now, jobs.name_of(row), origin, target))
        if rows:
            self._append(rows)
        if len(self._listed_at) > 2 * len(jobs) + MAX_ROWS:
            self._listed_at = {key: at for key, at in self._listed_at.items() if now - at < _INTERVAL_SECONDS}

    def note_move(self, at: float, job: str, origin: str, target: str) -> None:
        """Add a move that no round decided, such as one that a monitor requested."""
        self._append([_row(at, job, origin, target)])


class SpeconCsvFile(SpeconCsv):
    """Appends to a file on disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(self._write)
        self._path = path

    def _write(self, rows: list[str]) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as file:
            if file.tell() == 0:
                file.write(HEADER)
            file.writelines(rows)


class SpeconCsvBuffer(SpeconCsv):
    """Keeps the last `MAX_ROWS` rows in memory. Any thread may call `text`."""

    def __init__(self) -> None:
        super().__init__(self._extend)
        self._rows: deque[str] = deque(maxlen=MAX_ROWS)
        self._lock = threading.Lock()

    def _extend(self, rows: list[str]) -> None:
        with self._lock:
            self._rows.extend(rows)

    def text(self) -> str:
        with self._lock:
            return HEADER + "".join(self._rows)


def _row(at: float, job: str, origin: str, target: str) -> str:
    return f"{at!r},{job.rpartition('/')[2]},{origin},{target}\n"


def _node(snapshot: Snapshot, assignment: Assignment) -> str:
    workers = assignment.workers
    return str(snapshot.nodes.name[workers[0][0]]) if workers and workers[0][0] != ANYWHERE else ""
