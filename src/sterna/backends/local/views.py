"""Views of jobs and nodes for `ClusterService`, from the job store. The caller holds the lock of the job store."""

from __future__ import annotations

import math

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.node_slices import LocalNode
from sterna.backends.local.store.records import ACTIVE, ENDED, RUNNING, AttemptRecord, ReplicaRecord
from sterna.control.failures import backoff_sentence, free_capacity_sentence
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import MILLI, ResourceKind
from sterna.service.views import JobView, NodeView, ReplicaView


def job_view(backend: LocalBackend, job: LocalJob) -> JobView:
    record, spec, now = job.record, job.record.spec, backend.store.clock()
    attempt = record.attempt
    is_live = record.is_live
    view = JobView(
        job.name,
        spec.kind,
        _state(job),
        _reason(job, now),
        sum(count for _, count in attempt.workers) if is_live and attempt is not None else 0,
        record.minimum,
        record.maximum,
        spec.request,
        spec.priority,
        job.category,
        spec.user,
        record.submitted_at,
        record.first_started_at,
        record.ended_at,
        _waited_seconds(job, now),
        _ran(job, now),
        backend.watcher.cpu_seconds(job) if is_live else record.cpu_seconds,
        record.attempts,
        record.restarts,
        record.moves,
        record.cpu_share,
        lost_seconds=record.lost_seconds,
        exit_code=record.exit_code,
        nodes=list(dict.fromkeys(replica.node for replica in attempt.live)) if attempt is not None else [],
        replicas=_replicas(attempt),
        notices=list(spec.notices),
    )
    _tell_progress(backend, job, view)
    return view


def _state(job: LocalJob) -> str:
    record = job.record
    if record.deleting:
        return "deleting"
    if record.phase != ACTIVE:
        return record.phase
    if not record.is_live:
        return "waiting"
    assert record.attempt is not None
    return "stopping" if record.attempt.stopping else "running"


def _reason(job: LocalJob, now: float) -> str:
    record = job.record
    if record.phase == ACTIVE and not record.is_live and job.assignment.workers:
        return "waits: its place is being cleared by those who leave it."
    if record.phase != ACTIVE or job.reason is None:
        return record.reason
    if record.not_before > now:
        return backoff_sentence(record, now)
    return free_capacity_sentence(record, job.reason.sentence) if not record.is_live else job.reason.sentence


def _waited_seconds(job: LocalJob, now: float) -> float:
    record = job.record
    is_waiting = record.phase == ACTIVE and not record.is_live
    return record.waited_seconds + (max(0.0, now - record.queued_since) if is_waiting else 0.0)


def _ran(job: LocalJob, now: float) -> float:
    attempt = job.record.attempt
    running = now - attempt.counted_from if attempt is not None and attempt.counted_from else 0.0
    return job.record.executed + max(0.0, running)


def _replicas(attempt: AttemptRecord | None) -> list[ReplicaView]:
    if attempt is None:
        return []
    return [
        ReplicaView(replica.name, replica.node, _replica_state(attempt, replica), attempt.number, replica.pid,
                    replica.exit_code)
        for replica in attempt.replicas
    ]  # fmt: skip


def _replica_state(attempt: AttemptRecord, replica: ReplicaRecord) -> str:
    if replica.state == ENDED:
        return "ended"
    if attempt.stopping or replica.leaving:
        return "stopping"
    return "running" if replica.state == RUNNING else "starting"


def _tell_progress(backend: LocalBackend, job: LocalJob, view: JobView) -> None:
    """Fill in the reported progress; of a job that has ended, the last report."""
    progress, record = job.progress, job.record
    if progress is None or record.phase != ACTIVE:
        view.step, view.total, view.metric, view.value = record.step, record.total, record.metric, record.value
        return
    tracker = backend.store.tracker
    view.step, view.total, view.metric, view.value = progress.step, progress.total, progress.metric, progress.value
    if progress.value is not None:
        view.growth = tracker.growth_of(progress).name.lower()
    if record.is_live and (band := tracker.eta(progress)) is not None:
        low, middle, high = (each if math.isfinite(each) else None for each in (band.low, band.middle, band.high))
        view.eta_low_seconds, view.eta_seconds, view.eta_high_seconds = low, middle, high


def node_views(backend: LocalBackend) -> list[NodeView]:
    store = backend.store
    room = FreeCapacity(store.slices.table())
    jobs: dict[str, list[str]] = {node.name: [] for node in store.slices.nodes}
    for job in store.active():
        if job.assignment.workers:
            room.occupy(job.shape, job.assignment)
        attempt = job.record.attempt
        seats = {replica.node for replica in attempt.live} if attempt is not None else set()
        for name in seats & jobs.keys():
            jobs[name].append(job.name)
    return [_node(backend, node, row, room, jobs[node.name]) for row, node in enumerate(store.slices.nodes)]


def _node(backend: LocalBackend, node: LocalNode, row: int, room: FreeCapacity, jobs: list[str]) -> NodeView:
    parts = sum(room.shared.get(row, {}).values())
    state = backend.closed.get(node.name, "ready")
    words = backend.deps.groups.words
    return NodeView(
        node.name,
        "cordoned" if state == "draining" and not jobs else state,
        float(len(node.cores)),
        room.free.item(ResourceKind.CPUS, row) / MILLI,
        float(len(node.devices)),
        (room.free.item(ResourceKind.DEVICES, row) + parts) / MILLI,
        node.memory_bytes,
        room.free.item(ResourceKind.MEMORY, row),
        backend.store.slices.is_shared,
        f"{words}; {node.notice}" if node.notice else words,
        jobs,
    )
