"""Claims of a cluster: pods that go before training and have no node yet, and what is left beside them.

Serving pods are bound by their own scheduler, urgent SharePods by us (`urgent.py`). Which nodes a pod accepts is asked
anew each time, because it follows from the nodes that there are: a toleration means nothing until its taint is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from sterna.backends.kubernetes.api.job import PendingServingPod
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.serving_pod import ServingPod
from sterna.reservations.serving import TIMEOUT_SECONDS, KeptRoom


def reservations(state: ClusterState) -> tuple[ServingPod, ...]:
    """Of serving pods, then of urgent SharePods (DRAGON-55). Leaves the world settled."""
    return (*serving_reservations(state), *urgent_reservations(state))


def serving_reservations(state: ClusterState) -> list[ServingPod]:
    return _settled(state, state.pods.serving.values(), 0)


def urgent_reservations(state: ClusterState) -> list[ServingPod]:
    return _settled(state, map(state.share_pods.reservation_of, state.share_pods.urgent.values()), 1)


def _settled(state: ClusterState, reserving: Iterable[PendingServingPod], rank: int) -> list[ServingPod]:
    """The oldest first."""
    state.settle()
    fitted = state.capacity.fitted
    found = [
        ServingPod(each.name, fitted(each.shape, each.needs, each.gpu_fraction), each.since, rank) for each in reserving
    ]
    state.settle()  # a required affinity that nobody had before has become a label of nodes
    return sorted(found, key=lambda pod: (pod.since, pod.name))


def room_beside(state: ClusterState, pods: Iterable[ServingPod], now: float) -> FreeCapacity:
    """What nobody has, was promised, or has kept for it as one of these: whoever does not ask the rules may use it. A
    pod that nobody has bound for so long that the claim gives it up has nothing kept for it."""
    kept = KeptRoom(state.capacity.table())
    for pod in pods:
        if now < pod.since + TIMEOUT_SECONDS:
            kept.add(pod.shape)
    return kept.room
