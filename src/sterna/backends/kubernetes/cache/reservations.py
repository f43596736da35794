"""Reservations of a cluster: unbound pods that precede training, and the capacity left beside them.

Serving pods are bound by their own scheduler, urgent SharePods by `controllers/urgent_share_pods.py`. The nodes that a
pod accepts are resolved for every snapshot, because they depend on the existing nodes: a toleration means nothing until
its taint is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from sterna.backends.kubernetes.api.job import PendingServingPod
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.serving_pod import ServingPod
from sterna.reservations.serving import TIMEOUT_SECONDS, KeptRoom


def reservations(state: ClusterState) -> tuple[ServingPod, ...]:
    """Return the reservations of serving pods, then of urgent SharePods, and refresh the state."""
    return (*serving_reservations(state), *urgent_reservations(state))


def serving_reservations(state: ClusterState) -> list[ServingPod]:
    return _resolve(state, state.pods.serving.values(), 0)


def urgent_reservations(state: ClusterState) -> list[ServingPod]:
    return _resolve(state, map(state.share_pods.reservation_of, state.share_pods.urgent.values()), 1)


def _resolve(state: ClusterState, pending: Iterable[PendingServingPod], rank: int) -> list[ServingPod]:
    """Resolve shapes on the existing nodes, oldest pod first."""
    state.refresh()
    fitted = state.capacity.fit
    found = [
        ServingPod(each.name, fitted(each.shape, each.needs, each.gpu_fraction), each.since, rank) for each in pending
    ]
    state.refresh()  # a new required affinity became a virtual label of nodes
    return sorted(found, key=lambda pod: (pod.since, pod.name))


def free_beside(state: ClusterState, pods: Iterable[ServingPod], now: float) -> FreeCapacity:
    """Return the capacity that is neither used, planned nor reserved for these pods, for moves made without a round. A
    reservation that timed out does not count."""
    kept = KeptRoom(state.capacity.table())
    for pod in pods:
        if now < pod.since + TIMEOUT_SECONDS:
            kept.add(pod.shape)
    return kept.room
