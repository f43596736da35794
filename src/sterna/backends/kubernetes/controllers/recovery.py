"""Recovery of assignments when an operator starts leading, however the previous leader ended.

Assignments are read from pods. A partly created gang is completed from its pods' annotation, if its nodes still
exist; otherwise it is withdrawn and decided on again. Persisted state comes with the objects themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.controllers.controller import Controller
from sterna.kinds.parsed_job import PodOwnership
from sterna.model.cluster import NOWHERE


def recover(state: ClusterState, controllers: Mapping[PodOwnership, Controller], now: float) -> int:
    """Assign every job to the nodes of its pods; return the number of assigned jobs."""
    state.refresh()
    count = 0
    for entry in list(state.entries.values()):
        controller = controllers[entry.parsed_job.ownership]
        controller.prepare_recovery(entry)
        if not entry.wants_to_run:
            continue
        persisted = entry.job.persisted
        persisted.attempt = max([persisted.attempt, *(pod.attempt for pod in entry.job.pods.values())])
        if persisted.counted_from is not None:
            entry.counted_workers = entry.running_workers
        replicas = controller.find_replicas(entry)
        if replicas:
            state.reassign(entry, replicas)
            entry.assigned_at = persisted.started_at if persisted.started_at is not None else now
            count += 1
    state.work_queue.request_round()
    return count - _withdraw_oversubscribed(state, now)


def _withdraw_oversubscribed(state: ClusterState, now: float) -> int:
    """Withdraw incomplete gangs from oversubscribed nodes, the latest first; return their number."""
    overfull = state.capacity.overfull()
    count = 0
    for entry in sorted(state.entries.values(), key=lambda each: -each.parsed_job.submitted_at) if overfull else ():
        missing = [replica for replica in entry.replicas if (replica.type, replica.ordinal) not in entry.job.pods]
        if any(replica.node in overfull for replica in missing):
            entry.job.persisted.waiting_since = now
            state.assign(entry, (), NOWHERE)
            overfull = state.capacity.overfull()
            count += 1
    return count
