"""Where converged jobs were and where they went, in the form that SpeCon's tools read, for `/distribution.csv`.

The operator has no disk, so the rows of its life so far are kept in memory, the latest of them. The header is theirs to
the letter, misspelling included; a job that was looked at and kept has an empty last field, and is told again when a
round of moves has passed. DRAGON-87.
"""

from __future__ import annotations

import threading
from collections import deque

from sterna.control.controller import Recorder
from sterna.model.cluster import ANYWHERE
from sterna.model.growth import Growth
from sterna.model.plan import ActionKind, Decision
from sterna.model.snapshot import Snapshot

HEADER = "time,job,orginal_node,to_node\n"
_ROUND_SECONDS = 30.0
_MOST_ROWS = 10_000


class Distribution:
    """A recorder that remembers where jobs went, and hands every round on."""

    def __init__(self, then: Recorder | None = None) -> None:
        self._then = then
        self._rows: deque[str] = deque(maxlen=_MOST_ROWS)
        self._told: dict[int, float] = {}
        """When each converged job was last told of."""
        self._lock = threading.Lock()

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        if self._then is not None:
            self._then.record(snapshot, decision)
        jobs = snapshot.jobs
        converged = ((jobs.growth == Growth.CONVERGED) & (jobs.workers > 0)).nonzero()[0].tolist()
        moved = {action.row: action.after for action in decision.plan if action.kind is ActionKind.MIGRATE}
        for row in sorted({*moved, *converged}):
            origin = _node(snapshot, snapshot.assignment_of(row).workers)
            target = _node(snapshot, moved[row].workers) if row in moved else ""
            if origin and (target or self._is_due(jobs.key.item(row), snapshot.now)):
                self._told[jobs.key.item(row)] = snapshot.now
                self.note(snapshot.now, jobs.name_of(row), origin, target)
        if len(self._told) > 2 * len(jobs) + _MOST_ROWS:
            self._told = {key: at for key, at in self._told.items() if snapshot.now - at < _ROUND_SECONDS}

    def note(self, at: float, job: str, origin: str, target: str) -> None:
        """A move that was decided otherwise: at a monitor's request."""
        with self._lock:
            self._rows.append(f"{at!r},{job.rpartition('/')[2]},{origin},{target}\n")

    def text(self) -> str:
        """From any thread."""
        with self._lock:
            return HEADER + "".join(self._rows)

    def _is_due(self, key: int, now: float) -> bool:
        return now - self._told.get(key, -_ROUND_SECONDS) >= _ROUND_SECONDS


def _node(snapshot: Snapshot, workers: tuple[tuple[int, int], ...]) -> str:
    return str(snapshot.nodes.name[workers[0][0]]) if workers and workers[0][0] != ANYWHERE else ""
