"""Workers of every job over time, recorded from the decisions of the round loop.

The log sees decisions before they are applied. It learns of lost nodes later, from the `waiting_since` of a job that
starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sterna.control.round_loop import RoundObserver
from sterna.model.plan import ActionKind, Decision
from sterna.model.snapshot import JobKey, Snapshot


class Span(NamedTuple):
    """Span of time in which a job held a constant number of workers."""

    job: int
    start_seconds: float
    end_seconds: float
    workers: int


class AllocationLog:
    """Spans and stops of every job; hands each round on to another recorder, if there is one."""

    def __init__(self, jobs: int, then: RoundObserver | None = None) -> None:
        self.stops = [0] * jobs
        """Number of stops by the policy, by job."""
        self._spans: list[Span] = []
        self._open: dict[JobKey, tuple[float, int]] = {}
        self._then = then

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        for action in decision.plan.actions:
            if action.key in self._open:
                left_alone = action.before.workers
                self._close(action.key, snapshot.now if left_alone else snapshot.jobs.waiting_since.item(action.row))
            if action.kind is ActionKind.STOP:
                self.stops[action.key] += 1
            if action.after.workers:
                self._open[action.key] = (snapshot.now, action.after.size)
        if self._then is not None:
            self._then.record(snapshot, decision)

    def close_spans(self, finish: Sequence[float], end: Snapshot) -> list[Span]:
        """Return all spans by start, after the run; `end` has the time at which unfinished jobs lost their workers."""
        waiting = dict(zip(end.jobs.key.tolist(), end.jobs.waiting_since.tolist(), strict=True))
        for key in list(self._open):
            self._close(key, waiting.get(key, finish[key]))
        return sorted(self._spans, key=lambda span: (span.start_seconds, span.job))

    def _close(self, key: JobKey, end_seconds: float) -> None:
        start, workers = self._open.pop(key)
        if end_seconds > start:
            self._spans.append(Span(key, start, end_seconds, workers))
