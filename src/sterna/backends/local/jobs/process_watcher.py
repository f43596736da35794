"""Watch processes: starts, exits, and progress reports.

Exits arrive as readable process descriptors; starts are polled until seen; progress files are read a few times per
second, all at once. `ExitHandler` and `ProgressTracker` take what is found.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from sterna.backends.local.jobs.checkpoints import inspect_declared_checkpoint, note_checkpoint, note_reports
from sterna.backends.local.jobs.completion import LOST_CODE, ProcessExit
from sterna.backends.local.jobs.exits import ExitHandler
from sterna.backends.local.jobs.launching import LocalDeps
from sterna.backends.local.jobs.layout import spec_of
from sterna.backends.local.kernel.record_files import SAVED, read_record
from sterna.backends.local.kernel.wakeups import Wakeups
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import ENDED, INTENDED, RUNNING, AttemptRecord, ReplicaRecord
from sterna.backends.local.supervisor.launcher import ReplicaPhase, ReplicaState
from sterna.control.job_state import SaveEvidence
from sterna.control.progress_tracker import ProgressReport, SpeedSample
from sterna.errors import Retry
from sterna.progress.reader import ProgressReader
from sterna.progress.report import SourceReport

_ASKED_SECONDS = 15.0
"""A start that no shim has taken up by then is voided."""
_ALONE = 0.6
"""A process with at least this fraction of its job's CPU time represents the job."""
_KEPT_SECONDS = 1.0
"""Minimum interval between reports of a job that are stored; the tracker gets all of them."""


class ProcessWatcher:
    """Notices starts and exits, and reads progress."""

    def __init__(self, store: JobStore, deps: LocalDeps, exits: ExitHandler, wakeups: Wakeups) -> None:
        self._store, self._deps, self._exits, self._wakeups = store, deps, exits, wakeups
        self._readers: dict[str, tuple[LocalJob, ReplicaRecord, ProgressReader]] = {}
        """By the replica's folder, relative to the folder of jobs."""
        self._gone: set[str] = set()
        """Processes that have exited and were not handled yet."""
        self._read: set[str] = set()
        """Replicas with reports since their position was saved."""
        self._used: dict[int, tuple[float, float]] = {}
        """Time and value of the last reading of each job's CPU time."""

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def has_starting(self) -> bool:
        return any(replica.state == INTENDED for _, _, replica in self._live())

    def handle_ends(self, names: Collection[str]) -> None:
        self._gone.update(names)

    # Processes.

    def inspect(self, is_full: bool = False) -> bool:
        """Inspect replicas that are starting or have exited, or all of them; return True if anything changed."""
        has_changed = False
        for job, attempt, replica in list(self._live()):
            name = _name(job, attempt, replica)
            if replica.state == ENDED or not (is_full or name in self._gone or replica.state == INTENDED):
                continue
            self._gone.discard(name)
            try:
                has_changed = self._inspect(job, attempt, replica, name) or has_changed
            except Retry:
                self._gone.add(name)
        return has_changed

    def _live(self) -> Iterator[tuple[LocalJob, AttemptRecord, ReplicaRecord]]:
        with self._store.lock:
            jobs = list(self._store.live.values())
        for job in jobs:
            attempt = job.record.attempt
            if attempt is not None:
                yield from ((job, attempt, replica) for replica in attempt.live)

    def _inspect(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord, name: str) -> bool:
        folder = self._deps.environment.paths.jobs / name
        state = self._deps.processes.inspect(folder)
        if state.phase in (ReplicaPhase.RUNNING, ReplicaPhase.STARTING, ReplicaPhase.ENDING):
            return self._watch(job, replica, name, folder, state)
        if state.phase in (ReplicaPhase.ABSENT, ReplicaPhase.ASKED):
            since = max(attempt.started_at, replica.intended_at, replica.asked_at)
            is_late = self._store.clock() - since > _ASKED_SECONDS
            if not is_late or not self._deps.processes.void(folder):
                return False
        process_exit = self._find_exit(replica, folder, state)
        if process_exit is None:
            self._gone.add(name)  # part of it still runs: inspect it again
            return False
        if (
            name not in self._readers and folder.is_dir()
        ):  # it exited while the daemon was down: its reports are still there
            self._readers[name] = (job, replica, self._reader(job, replica, name, folder))
        self._read_final_reports(name)
        self._note_saved(job, folder)
        self._wakeups.drop(name)
        self._exits.handle_exit(job, replica, process_exit)
        return True

    def _note_saved(self, job: LocalJob, folder: Path) -> None:
        """Note the last checkpoint that it made by itself."""
        with self._store.lock:
            if at := last_saved_at(folder):
                note_checkpoint(job.record, at)
            inspect_declared_checkpoint(job.record)

    def _watch(self, job: LocalJob, replica: ReplicaRecord, name: str, folder: Path, state: ReplicaState) -> bool:
        """Watch a running replica for its exit and its reports."""
        if name not in self._readers:
            descriptor = self._deps.processes.watch(folder)
            if descriptor is None:
                self._gone.add(name)
                return False
            self._wakeups.follow(name, descriptor)
            self._readers[name] = (job, replica, self._reader(job, replica, name, folder))
        if state.phase is ReplicaPhase.STARTING or replica.state == RUNNING:
            return False
        with self._store.lock:
            replica.state, replica.pid = RUNNING, state.pid
            self._store.save_later(job)
        return False

    def _reader(self, job: LocalJob, replica: ReplicaRecord, name: str, folder: Path) -> ProgressReader:
        """Return a reader that continues where the predecessor's stopped."""
        cwd = spec_of(job.record, replica.type).working_dir
        return ProgressReader(
            folder, job.record.spec.progress, Path(cwd) if cwd else None, self._store.positions(job, name)
        )

    def _find_exit(self, replica: ReplicaRecord, folder: Path, state: ReplicaState) -> ProcessExit | None:
        """Return its exit; None while parts of it may still run."""
        if state.exit is not None:
            seen = state.exit
            at = seen.at or self._store.clock()
            return ProcessExit(
                seen.code, at, seen.was_asked, seen.has_saved, cpu_seconds=seen.cpu_seconds, why=seen.error
            )
        if state.phase is not ReplicaPhase.LOST:
            return ProcessExit(LOST_CODE, self._store.clock(), bool(replica.asked_at), saved=False, began=False)
        at = _last_sign(folder, self._store.clock())
        if not self._deps.processes.kill(folder):
            return None
        was_asked = bool(replica.asked_at)
        has_saved = was_asked and last_saved_at(folder) >= replica.asked_at
        return ProcessExit(LOST_CODE, at, was_asked, has_saved, lost=not was_asked)

    # Reports.

    def read_reports(self) -> set[int]:
        """Read new reports; return the keys of jobs about which rules may decide differently now."""
        heard, registered = [], set()
        for name, (job, _, reader) in list(self._readers.items()):
            reports = reader.poll()
            if self._note_registration(job, reader):
                registered.add(job.key)
            if reports:
                heard.append((job, _to_reports(reports)))
                self._read.add(name)
        return self._take(heard) | registered

    def _note_registration(self, job: LocalJob, reader: ProgressReader) -> bool:
        """Note that a process answers stop requests; return True if that is news."""
        attempt = job.record.attempt
        if attempt is None or attempt.registered or not reader.has_registered:
            return False
        with self._store.lock:
            attempt.registered = True
            job.record.note_evidence(SaveEvidence.REGISTERED)
            self._store.save_later(job)
        return True

    def inspect_checkpoints(self) -> bool:
        """Look for new checkpoints where manifests declare them; return True if there are some."""
        with self._store.lock:
            changed = [job for job in self._store.live.values() if inspect_declared_checkpoint(job.record)]
            if changed:
                self._store.save_later(*changed)
            return bool(changed)

    def add_reports(self, job: LocalJob, reports: Sequence[ProgressReport]) -> set[int]:
        """Take reports that arrived by the API."""
        return self._take([(job, list(reports))])

    def _read_final_reports(self, name: str) -> None:
        """Read the reports that a process wrote just before it exited."""
        found = self._readers.pop(name, None)
        if found is not None:
            job, _, reader = found
            reports = reader.poll(is_last=True)
            self._note_registration(job, reader)
            self._take([(job, _to_reports(reports))])
            self._store.save_positions(job, name, reader.positions)
            reader.close()
            self._read.discard(name)
            self._used.pop(job.key, None)

    def save_positions(self) -> None:
        """Save how far progress files have been read."""
        for name in self._read & self._readers.keys():
            job, _, reader = self._readers[name]
            self._store.save_positions(job, name, reader.positions)
        self._read.clear()

    def _take(self, heard: Sequence[tuple[LocalJob, list[ProgressReport]]]) -> set[int]:
        with self._store.lock:
            batch = []
            for job, reports in heard:
                attempt = job.record.attempt
                if not reports or attempt is None or job.progress is None:
                    continue
                self._learn_restart(job, attempt, reports[0])
                self._keep(job, attempt, reports)
                note_reports(self._store, job, attempt, reports)
                batch.append((job.key, reports, self._speed_sample(job, attempt, reports[-1])))
            news = self._store.tracker.add_reports(batch)
            if batch:
                self._store.notify_change()
            return news

    def _keep(self, job: LocalJob, attempt: AttemptRecord, reports: Sequence[ProgressReport]) -> None:
        kept = []
        for report in reports:
            if report.at - job.reported_at >= _KEPT_SECONDS or report.step == report.total:
                job.reported_at = report.at
                kept.append(report)
        if kept:
            self._store.save_reports(job, attempt.number, kept)

    def _learn_restart(self, job: LocalJob, attempt: AttemptRecord, first: ProgressReport) -> None:
        if attempt.first_report_at:
            return
        attempt.first_report_at = first.at
        if attempt.number > 1 and first.at > attempt.started_at:
            self._store.tracker.learned_curves.add_restart(job.category, first.at - attempt.started_at)

    def _speed_sample(self, job: LocalJob, attempt: AttemptRecord, report: ProgressReport) -> SpeedSample:
        """Return the speed sample of a report: by CPU time on shared nodes, by elapsed time elsewhere."""
        workers = sum(count for _, count in attempt.workers)
        if not self._store.slices.is_shared:
            running = self._store.clock() - attempt.counted_from if attempt.counted_from else 0.0
            return SpeedSample(attempt.number, workers, job.record.executed + running)
        return SpeedSample(attempt.number, workers, self._cpu_seconds_at(job, attempt, report) / job.cores)

    def _cpu_seconds_at(self, job: LocalJob, attempt: AttemptRecord, report: ProgressReport) -> float:
        """Return the CPU time at the time of a report.

        Reports are read a moment later; on a shared node the job may have used much CPU since, or none. The process's
        own count is exact if it has used nearly all of the job's; otherwise interpolate between two readings.
        """
        now, used, earlier = self._store.clock(), self.cpu_seconds(job), job.record.cpu_seconds
        since, before = self._used.get(job.key, (attempt.started_at, earlier))
        self._used[job.key] = (now, used)
        is_between = since <= report.at < now and used >= before
        counted = before + (used - before) * (report.at - since) / (now - since) if is_between else used
        is_alone = len(attempt.live) == 1 and report.cpu_seconds > _ALONE * (counted - earlier)
        return earlier + report.cpu_seconds if is_alone else counted

    def cpu_seconds(self, job: LocalJob) -> float:
        """Return the CPU time of all its processes, including those that have exited."""
        used, attempt = job.record.cpu_seconds, job.record.attempt
        for replica in attempt.live if attempt is not None else ():
            if replica.state == RUNNING and attempt is not None:
                counted = self._deps.groups.cpu_seconds(replica.group) if replica.group else None
                folder = self._deps.environment.paths.jobs / _name(job, attempt, replica)
                used += self._deps.processes.cpu_seconds(folder) if counted is None else counted
        return used


def _name(job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord) -> str:
    return f"{job.name}/{attempt.number}/{replica.name}"


def _to_reports(reports: Sequence[SourceReport]) -> list[ProgressReport]:
    return [
        ProgressReport(each.at, each.step, each.total, each.metrics, each.saved, each.cpu_seconds) for each in reports
    ]


def last_saved_at(folder: Path) -> float:
    """Return the time of its last checkpoint; 0: none."""
    record = read_record(str(folder), SAVED) or {}
    at = record.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _last_sign(folder: Path, now: float) -> float:
    """Return when a process without an exit record last wrote a file."""
    try:
        times = [entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return now
    return min(max(times, default=now), now)
