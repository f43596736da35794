"""Views of jobs and nodes for users, built from the cluster state. The caller holds the backend's lock."""

from __future__ import annotations

from collections.abc import Mapping

from sterna.backends.kubernetes.api.job import PodState
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.lifecycle.verdict import VerdictKind
from sterna.control.progress_tracker import category_of
from sterna.model.cluster import MILLI, ResourceKind
from sterna.service.views import JobView, NodeView, ReplicaView

_STATES = {
    PodState.PENDING: "starting",
    PodState.RUNNING: "running",
    PodState.SUCCEEDED: "ended",
    PodState.FAILED: "ended",
}


def job_views(state: ClusterState, now: float) -> list[JobView]:
    return [job_view(state, entry, now) for entry in state.entries.values()]


def job_view(state: ClusterState, entry: JobEntry, now: float) -> JobView:
    spec, persisted = entry.parsed_job.spec, entry.job.persisted
    progress = state.progress.view(entry.key, False)
    running = now - persisted.counted_from if persisted.counted_from is not None else 0.0
    waits_from = persisted.waiting_since if persisted.waiting_since is not None else entry.parsed_job.submitted_at
    is_waiting = entry.stage is Stage.ACTIVE and not entry.replicas
    return JobView(
        entry.name,
        spec.kind,
        state_of(entry),
        entry.retry.message or entry.outcome[1] or (entry.reason.sentence if entry.reason is not None else ""),
        entry.running_workers,
        spec.minimum,
        spec.maximum,
        spec.request,
        spec.priority,
        category_of(spec.name, spec.category),
        spec.user,
        entry.parsed_job.submitted_at,
        persisted.first_started_at,
        persisted.ended_at,
        max(0.0, now - waits_from) if is_waiting else 0.0,
        persisted.executed + max(0.0, running),
        0.0,
        persisted.attempt,
        persisted.restarts,
        persisted.moves,
        persisted.cpu_share,
        progress.step if progress.step is not None else persisted.step,
        progress.total if progress.total is not None else persisted.total,
        progress.metric or persisted.metric,
        progress.value if progress.value is not None else persisted.value,
        progress.growth,
        lost_seconds=persisted.lost_seconds,
        exit_code=entry.verdict.exit_code,
        nodes=list(dict.fromkeys(pod.node for pod in entry.live_pods if pod.node)),
        replicas=_replicas(entry),
        notices=list(spec.notices),
    )


def state_of(entry: JobEntry) -> str:
    if entry.job.is_deleting:
        return "deleting"
    if entry.stage is not Stage.ACTIVE:
        is_complete = entry.verdict.kind is VerdictKind.COMPLETED or entry.status.phase == "Succeeded"
        return "completed" if is_complete or entry.job.status.get("phase") == "Succeeded" else "failed"
    if not entry.replicas:
        return "stopping" if any(True for _ in entry.live_pods) else "waiting"
    return "running"


def _replicas(entry: JobEntry) -> list[ReplicaView]:
    return [
        ReplicaView(
            f"{pod.type}-{pod.index}",
            pod.node,
            "stopping" if pod.is_deleting and not pod.is_terminated else _STATES[pod.state],
            pod.attempt,
            exit_code=pod.exit_code,
        )
        for _, pod in sorted(entry.job.pods.items())
    ]


def node_views(state: ClusterState) -> list[NodeView]:
    state.refresh()
    table, capacity = state.capacity.table(), state.capacity
    jobs: dict[str, list[str]] = {}
    for entry in state.entries.values():
        for node in {pod.node for pod in entry.live_pods}:
            jobs.setdefault(node, []).append(entry.name)
    shared = table.shared
    return [
        NodeView(
            name,
            "ready" if table.is_open[row] else "cordoned",
            table.capacity.item(ResourceKind.CPUS, row) / MILLI,
            table.free.item(ResourceKind.CPUS, row) / MILLI,
            table.capacity.item(ResourceKind.DEVICES, row) / MILLI,
            (table.free.item(ResourceKind.DEVICES, row) + sum(shared.get(row, {}).values())) / MILLI,
            table.capacity.item(ResourceKind.MEMORY, row),
            table.free.item(ResourceKind.MEMORY, row),
            False,
            "Kubernetes",
            sorted(jobs.get(name, ())),
        )
        for row, name in enumerate(capacity.names)
    ]


def cluster_info(state: ClusterState) -> Mapping[str, NodeInfo]:
    """Return capacity, free capacity and limits of each node, for container-migration's `/cluster-info`."""
    state.refresh()
    table, usage, name_of = state.capacity.table(), state.capacity.usage(), state.capacity.gpu_fractions.name_of
    found = {}
    for row, name in enumerate(state.capacity.names):
        facts = state.capacity.facts(name)
        devices, cpus, memory_bytes, _, limit_cpus, limit_memory_bytes = usage[:, row].tolist()
        total = table.capacity[:, row].tolist()
        parts = {name_of(name, number): {"request": left} for number, left in table.shared.get(row, {}).items()}
        found[name] = NodeInfo(
            total[ResourceKind.CPUS],
            total[ResourceKind.MEMORY],
            total[ResourceKind.DEVICES] // MILLI,
            facts.gpu_memory_bytes if facts is not None else 0,
            max(0, total[ResourceKind.CPUS] - cpus),
            max(0, total[ResourceKind.MEMORY] - memory_bytes),
            limit_cpus,
            limit_memory_bytes,
            max(0, total[ResourceKind.DEVICES] - devices) // MILLI,
            parts,
        )
    return found
