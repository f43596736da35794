"""Save evidence of running jobs: what a stop would lose, and how an attempt went. The caller holds the store's lock."""

from __future__ import annotations

import os
from itertools import islice

from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import AttemptRecord, JobRecord
from sterna.control.job_state import SaveEvidence
from sterna.control.progress_tracker import ProgressReport
from sterna.control.restart_policy import ran_well

LEAST_LOSS_SECONDS = 1.0
"""Least loss of work that is worth an event."""
_MOST_FILES = 1000
"""Files of a checkpoint folder whose times are read."""


def unsaved_seconds(record: JobRecord, now: float) -> float:
    """Return seconds of work that a stop of a running job would lose."""
    attempt = record.attempt
    return record.unsaved_seconds(attempt.started_at, now) if attempt is not None and attempt.counted_from else 0.0


def runs_well(store: JobStore, job: LocalJob, attempt: AttemptRecord, until: float) -> bool:
    """True if an attempt has gone beyond the steps of its predecessors by `until`, or has run for long."""
    has_steps = attempt.top_step >= 0
    has_progressed = attempt.top_step > max(job.record.reached_step, 0) if has_steps else attempt.first_report_at > 0
    restart_seconds = store.tracker.learned_curves.restart_seconds_of(job.category)
    return ran_well(has_progressed, until - attempt.started_at, restart_seconds)


def note_reports(store: JobStore, job: LocalJob, attempt: AttemptRecord, reports: list[ProgressReport]) -> None:
    """Record what reports show about checkpoints, and find an attempt that should have resumed and did not."""
    record = job.record
    for report in reports:
        if report.saved:
            note_checkpoint(record, report.at, report.step)
        if report.step is None:
            continue
        lost = record.note_first_step(report.step) if attempt.top_step < 0 else None
        attempt.top_step = max(attempt.top_step, report.step)
        if lost is not None:
            store.note(
                job.name,
                "lost",
                f"lost {lost:.0f} s of work: it said that it can save, was stopped, and began again at step "
                f"{report.step}; from now on it counts as a job that cannot save.",
            )


def note_checkpoint(record: JobRecord, at: float, step: int | None = None) -> None:
    """Record a complete checkpoint."""
    record.note_evidence(SaveEvidence.SAVED)
    record.saved_at = max(record.saved_at, at)
    if step is not None:
        record.saved_step = step


def inspect_declared_checkpoint(record: JobRecord) -> bool:
    """Look for a checkpoint that the current attempt wrote where the manifest says; return True if there is a new
    one."""
    attempt, spec = record.attempt, record.spec
    if not spec.checkpoint or attempt is None or record.save is SaveEvidence.REGISTERED:
        return False
    at = _changed_at(os.path.join(spec.worker.working_dir, spec.checkpoint))
    if at <= max(attempt.started_at, record.saved_at):
        return False
    note_checkpoint(record, at)
    return True


def _changed_at(path: str) -> float:
    """Return when a file, or a file of a folder, was last changed; 0: there is none."""
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_mtime
        with os.scandir(path) as entries:
            return max((entry.stat().st_mtime for entry in islice(entries, _MOST_FILES)), default=0.0)
    except OSError:
        return 0.0
