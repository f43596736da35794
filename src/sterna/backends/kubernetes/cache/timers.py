"""`Timers`: times at which jobs are reconciled without an event. A heap, because thousands of jobs have one each."""

from __future__ import annotations

import heapq

from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.model.snapshot import NEVER


class Timers:
    """Heap of due times."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    def set(self, at: float, entry: JobEntry | None = None) -> None:
        """Set a timer of a job, or a global one. Only the earliest timer of a job counts."""
        if at == NEVER:
            return
        if entry is not None:
            if at >= entry.next_reconcile_at:
                return
            entry.next_reconcile_at = at
        heapq.heappush(self._heap, (at, entry.key if entry is not None else 0))

    def due(self, now: float) -> list[int]:
        """Remove due timers; return their job keys without duplicates, 0 for a global timer."""
        keys: dict[int, None] = {}
        while self._heap and self._heap[0][0] <= now:
            keys[heapq.heappop(self._heap)[1]] = None
        return list(keys)

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else NEVER
