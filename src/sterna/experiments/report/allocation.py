"""Workers of every job over time."""

from __future__ import annotations

from typing import NamedTuple

from sterna.backends.simulated.change_log import ChangeLog


class Span(NamedTuple):
    """Span of time in which a job held a constant number of workers."""

    job: int
    start_seconds: float
    end_seconds: float
    workers: int


def spans_of(changes: ChangeLog) -> list[Span]:
    """Return all spans of a run by start; spans without length are left out."""
    spans: list[Span] = []
    running: dict[int, tuple[float, int]] = {}
    for time, job, workers in zip(changes.time, changes.job, changes.workers, strict=True):
        if job in running:
            start, before = running.pop(job)
            if time > start:
                spans.append(Span(job, start, time, before))
        if workers:
            running[job] = (time, workers)
    return sorted(spans, key=lambda span: (span.start_seconds, span.job))
