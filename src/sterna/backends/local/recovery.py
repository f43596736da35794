"""Recovery: a restarted daemon finds every replica again, however its predecessor died.

Replicas without a running shim are voided, so that they cannot start later; running ones are watched again; those that
have exited are handled by their exit record, or as lost without one. Folders that belong to no job are removed, after
their processes were killed. Only then is anything started.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.supervisor.launcher import ReplicaPhase
from sterna.control.progress_tracker import ProgressReport, SpeedSample
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import NOWHERE

_UNKNOWN_SHARE = -1.0
"""Unknown CPU share: the predecessor may have set any."""


def recover(backend: LocalBackend) -> int:
    """Make job store and machine agree; return the number of replicas found running."""
    store = backend.store
    _restore_assignments(backend)
    for job in store.jobs.values():
        if job.progress is not None:
            _replay_reports(store, job)
    _void_unstarted(backend)
    _remove_unknown_folders(backend)
    for job in [job for job in store.jobs.values() if job.record.deleting and not job.record.is_live]:
        backend.exits.forget(job)
    backend.watcher.inspect(is_full=True)
    for job in store.live.values():
        if (attempt := job.record.attempt) is not None:
            backend.attempts.adopt_replica(job, attempt)
    found = sum(len(each.live) for job in store.live.values() if (each := job.record.attempt) is not None)
    if found:
        store.note("", "recovered", f"The daemon is back: {found} replicas were found running.")
    return found


def _restore_assignments(backend: LocalBackend) -> None:
    """Keep assignments for which the current nodes have room."""
    store = backend.store
    room = FreeCapacity(store.slices.table())
    for job in store.active():
        if job.assignment.workers:
            room.occupy(job.shape, job.assignment)
            if room.free.min() < 0 or any(part < 0 for parts in room.shared.values() for part in parts.values()):
                room.release(job.shape, job.assignment)
                store.assign(job, NOWHERE)
        attempt = job.record.attempt
        for replica in attempt.live if attempt is not None else ():
            job.weights[replica.group] = _UNKNOWN_SHARE


def _replay_reports(store: JobStore, job: LocalJob) -> None:
    """Replay the progress reports stored by the predecessor."""
    by_attempt: dict[int, list[ProgressReport]] = {}
    for attempt, report in store.reports(job.key):
        by_attempt.setdefault(attempt, []).append(report)
    for attempt, reports in sorted(by_attempt.items()):
        store.tracker.add_reports([(job.key, reports, SpeedSample(attempt, 0, 0.0))])
        job.reported_at = max(job.reported_at, reports[-1].at)


def _void_unstarted(backend: LocalBackend) -> None:
    """Void replicas whose lock file no shim has linked. The first link wins, so a late shim starts nothing."""
    processes, paths = backend.deps.processes, backend.deps.environment.paths
    for job in list(backend.store.live.values()):
        attempt = job.record.attempt
        for replica in attempt.live if attempt is not None else ():
            folder = paths.replica(job.name, attempt.number, replica.name) if attempt is not None else Path()
            if processes.inspect(folder).phase in (ReplicaPhase.ABSENT, ReplicaPhase.ASKED):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                processes.void(folder)


def _remove_unknown_folders(backend: LocalBackend) -> None:
    paths, processes = backend.deps.environment.paths, backend.deps.processes
    shutil.rmtree(paths.state / "trash", ignore_errors=True)
    known = {job.name for job in backend.store.jobs.values()}
    for folder in paths.jobs.iterdir() if paths.jobs.is_dir() else ():
        if folder.name in known or not folder.is_dir():
            continue
        for replica in _replicas_in(folder):
            if processes.inspect(replica).phase in (ReplicaPhase.ABSENT, ReplicaPhase.ASKED):
                processes.void(replica)
            else:
                processes.kill(replica)
        shutil.rmtree(folder, ignore_errors=True)


def _replicas_in(folder: Path) -> Iterator[Path]:
    for attempt in folder.iterdir():
        if attempt.name.isdigit() and attempt.is_dir():
            yield from (replica for replica in attempt.iterdir() if replica.is_dir())
