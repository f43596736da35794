"""Process exits: record them, and conclude the attempt after the last one.

`completion.py` decides the result; this module records, reports and saves it. Work that was not saved is counted and
reported as lost. The files of a deleted job are moved aside first, so that its name is free at once.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sterna.backends.local.jobs.checkpoints import LEAST_LOSS_SECONDS, note_checkpoint, runs_well
from sterna.backends.local.jobs.completion import AttemptResult, ProcessExit, after_failure, is_complete, is_done
from sterna.backends.local.jobs.launching import LocalDeps
from sterna.backends.local.jobs.reconciler import AttemptReconciler, count_run_time
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import COMPLETED, ENDED, FAILED, AttemptRecord, ReplicaRecord
from sterna.control.failures import backoff_sentence, describe_exit
from sterna.control.job_state import SaveEvidence
from sterna.control.restart_policy import backoff_seconds
from sterna.model.cluster import NOWHERE


@dataclass(frozen=True)
class RestartBackoff:
    """Delays between restarts after failures: doubled from the first to the longest."""

    first_seconds: float = 1.0
    max_seconds: float = 300.0


class Sweeper:
    """Removes folders in a background thread, because checkpoints may be large; the thread ends when there is no more
    work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_sweeping = self._has_more = False

    def sweep(self, folder: Path) -> None:
        """Remove everything in this folder."""
        with self._lock:
            self._has_more = True
            if self._is_sweeping:
                return
            self._is_sweeping = True
        threading.Thread(target=self._run, args=(folder,), name="sweeping", daemon=True).start()

    def _run(self, folder: Path) -> None:
        while True:
            with self._lock:
                if not self._has_more:
                    self._is_sweeping = False
                    return
                self._has_more = False
            for path in folder.iterdir():
                shutil.rmtree(path, ignore_errors=True)


class ExitHandler:
    """Handles every process that has exited."""

    def __init__(
        self,
        store: JobStore,
        attempts: AttemptReconciler,
        deps: LocalDeps,
        rules: RestartBackoff | None = None,
        on_finished: Callable[[LocalJob], None] = lambda job: None,
    ) -> None:
        self._store, self._reconciler, self._deps = store, attempts, deps
        self._backoff = rules or RestartBackoff()
        self._on_finished = on_finished
        self._sweeper = Sweeper()

    def handle_exit(self, job: LocalJob, replica: ReplicaRecord, ending: ProcessExit) -> None:
        """Handle the exit of one process."""
        crash_point("daemon.hearing")
        record, attempt, store = job.record, job.record.attempt, self._store
        assert attempt is not None
        progress = job.progress
        step, total = (progress.step, progress.total) if progress else (None, None)
        with store.lock:
            replica.state, replica.exit_code, replica.saved = ENDED, ending.code, ending.saved
            record.cpu_seconds += ending.cpu_seconds
            attempt.ended_at = max(attempt.ended_at, ending.at)
            if ending.saved:
                note_checkpoint(record, ending.at, step)
                record.note_evidence(SaveEvidence.REGISTERED)
        if replica.group:
            with suppress(OSError):  # an empty group that stays is harmless, and is removed with the daemon's
                self._deps.groups.remove(replica.node, replica.group)
        if ending.saved:
            at = f" at step {step}" if step is not None else ""
            store.note(job.name, "saved", f"{replica.name} saved its work{at} and ended as it was asked to.")
        if is_done(ending, step, total):
            attempt.done.append(replica.name)
        elif not ending.began:
            if not self._reconciler.drop(job, attempt, replica):
                self._reconciler.stop(job, attempt.stopping or "it was not started")
        elif not self._is_expected(replica, attempt, ending):
            self._fail(job, attempt, replica, ending)
        self._continue_attempt(job, attempt, replica)

    def _is_expected(self, replica: ReplicaRecord, attempt: AttemptRecord, ending: ProcessExit) -> bool:
        """True if it, or the whole attempt, was asked to stop."""
        return ending.asked or replica.leaving or bool(attempt.stopping)

    def _fail(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord, ending: ProcessExit) -> None:
        how = "was lost: it left no exit record" if ending.lost else f"ended with {describe_exit(ending.code)}"
        if ending.why:
            how = f"could not be started: {ending.why.removesuffix('.')}"
        if self._reconciler.drop(job, attempt, replica):
            self._store.note(job.name, "resized", f"{replica.name} {how}; the others go on without it.")
            return
        with self._store.lock:
            attempt.failed, attempt.exit_code, attempt.failed_type = True, ending.code, replica.type
            attempt.lost = attempt.lost or ending.lost
        self._store.note(job.name, "ended", f"{replica.name} {how}.")

    def _continue_attempt(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord) -> None:
        if attempt.live and not attempt.stopping:
            if is_complete(job.record.spec, attempt, set(attempt.done)):
                self._reconciler.stop(job, "the job is done")
            elif attempt.failed:
                self._reconciler.stop(job, f"{replica.name} failed")
        self._reconciler.handle_member_exit(job, attempt)
        if not attempt.live:
            self.close(job)
        else:
            self._store.save_later(job)

    # After the last exit.

    def close(self, job: LocalJob) -> None:
        """Conclude an attempt without processes."""
        crash_point("daemon.closing")
        record, attempt = job.record, job.record.attempt
        assert attempt is not None
        count_run_time(self._store, job, attempt.ended_at or self._store.clock())
        attempt.counted_from = 0.0
        self._store.index(job)
        verdict = self._verdict(job, attempt)
        if verdict is not AttemptResult.COMPLETED and not record.deleting:
            self._count_lost(job, attempt)
            self._note_run(job, attempt, verdict)
        if record.deleting:
            self.forget(job)
        elif verdict is AttemptResult.COMPLETED:
            self._finish(job, COMPLETED, 0, "completed.")
        elif record.doomed:
            self._finish(job, FAILED, attempt.exit_code, f"failed: {record.doomed}.")
        elif verdict is AttemptResult.FAILED:
            self._finish(job, FAILED, attempt.exit_code, self._why_failed(job, attempt))
        elif verdict is AttemptResult.RESTART:
            self._schedule_restart(job)
        else:
            self._queue_job(job, attempt)

    def _verdict(self, job: LocalJob, attempt: AttemptRecord) -> AttemptResult:
        if is_complete(job.record.spec, attempt, set(attempt.done)):
            return AttemptResult.COMPLETED
        if attempt.failed:
            return after_failure(job.record, attempt)
        return AttemptResult.STOPPED

    def _count_lost(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Count the work since the last checkpoint as lost, unless a replica saved after the stop request."""
        if any(replica.saved for replica in attempt.replicas) or not attempt.ended_at:
            return
        record = job.record
        lost = max(0.0, attempt.ended_at - max(record.saved_at, attempt.started_at))
        is_noted = bool(attempt.stopping) and not attempt.failed and lost >= LEAST_LOSS_SECONDS
        sentence = "it did not say that it saved before it ended."
        with self._store.lock:
            if is_noted and attempt.registered and record.can_save:
                record.break_save(lost)
                sentence = "it said that it saves when it is asked to stop, and did not; "
                sentence += "from now on it counts as a job that cannot save."
            else:
                record.lost_seconds += lost
        if is_noted:
            self._store.note(job.name, "lost", f"lost {lost:.0f} s of work: {sentence}")

    def _note_run(self, job: LocalJob, attempt: AttemptRecord, verdict: AttemptResult) -> None:
        """Record how an attempt went that did not complete the job, and where the next one should go on."""
        record, until = job.record, attempt.ended_at or self._store.clock()
        with self._store.lock:
            is_good = runs_well(self._store, job, attempt, until)
            if verdict is not AttemptResult.STOPPED:
                has_run = any(replica.pid for replica in attempt.replicas)  # the machine is to blame for a lost exit
                record.note_failure(is_good or (attempt.lost and has_run), None if attempt.lost else attempt.exit_code)
            elif is_good:
                record.note_good_run()
            if verdict is AttemptResult.STOPPED and record.can_save:
                record.resume_step = attempt.top_step
            record.reached_step = max(record.reached_step, attempt.top_step)

    def _why_failed(self, job: LocalJob, attempt: AttemptRecord) -> str:
        record = job.record
        again = f" after {record.restarts} restarts" if record.restarts else ""
        policy = record.spec.restart_of(attempt.failed_type).value
        return f"failed with {describe_exit(attempt.exit_code)}{again} (restart policy {policy})."

    def _schedule_restart(self, job: LocalJob) -> None:
        record, now = job.record, self._store.clock()
        with self._store.lock:
            record.restarts += 1
            wait = backoff_seconds(record.failures, self._backoff.first_seconds, self._backoff.max_seconds)
            record.not_before, record.waiting_since = now + wait, now
            record.reason = backoff_sentence(record, now)
            self._store.assign(job, NOWHERE)
            self._store.save_later(job)
        self._store.note(job.name, "restarting", record.reason)

    def _queue_job(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Queue a stopped job; it restarts at once if it has an assignment."""
        with self._store.lock:
            job.record.waiting_since = self._store.clock()
            self._store.save_later(job)
        why = attempt.stopping or "it has to wait"
        self._store.note(job.name, "stopped", f"{why if why.startswith('stopped') else f'stopped: {why}'}.")

    def _finish(self, job: LocalJob, phase: str, code: int | None, sentence: str) -> None:
        record = job.record
        with self._store.lock:
            ended_at = record.attempt.ended_at if record.attempt is not None else 0.0
            record.phase, record.exit_code, record.ended_at = phase, code, ended_at or self._store.clock()
            record.reason = sentence
            if (progress := job.progress) is not None:
                record.step, record.total = progress.step, progress.total
                record.metric, record.value = progress.metric, progress.value
            self._store.assign(job, NOWHERE)
            self._on_finished(job)
            self._store.index(job)
            self._store.save_learned_curves()
            self._store.save_later(job)
        self._store.note(job.name, phase, sentence)

    def fail(self, job: LocalJob, why: str) -> None:
        """Fail a job: at once if it has no processes, else after they have stopped."""
        with self._store.lock:
            job.record.doomed = why
            self._store.assign(job, NOWHERE)
            self._store.save_later(job)
        if not job.record.is_live:
            self._finish(job, FAILED, None, f"failed: {why}.")

    def forget(self, job: LocalJob) -> None:
        """Remove a job without processes and its files; its events stay."""
        paths = self._deps.environment.paths
        folder = paths.job(job.name)
        aside = paths.state / "trash" / f"{job.key}"
        with self._store.lock:
            if job.key not in self._store.jobs:
                return
            aside.parent.mkdir(exist_ok=True)
            if is_there := folder.is_dir():
                folder.rename(aside)
            self._store.remove(job)
        if is_there:
            self._sweeper.sweep(aside.parent)
        self._store.note(job.name, "deleted", "deleted.")
