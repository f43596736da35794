"""Claims of a cluster: pods that go before training and have no node yet, and what is left beside them.

Serving pods are bound by their own scheduler, urgent SharePods by us (`urgent.py`). Which nodes a pod accepts is asked
anew each time, because it follows from the nodes that there are: a toleration means nothing until its taint is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from sterna.backends.kubernetes.api.job import PendingServingPod
from sterna.backends.kubernetes.cache.cluster_state import World
from sterna.engine.placement.free_capacity import Room
from sterna.model.serving_pod import ServingPod
from sterna.reservations.serving import TIMEOUT_SECONDS, Kept


def reservations(world: World) -> tuple[ServingPod, ...]:
    """Of serving pods, then of urgent SharePods (DRAGON-55). Leaves the world settled."""
    return (*serving_reservations(world), *urgent_reservations(world))


def serving_reservations(world: World) -> list[ServingPod]:
    return _settled(world, world.pods.serving.values(), 0)


def urgent_reservations(world: World) -> list[ServingPod]:
    return _settled(world, map(world.share_pods.reservation_of, world.share_pods.urgent.values()), 1)


def _settled(world: World, reserving: Iterable[PendingServingPod], rank: int) -> list[ServingPod]:
    """The oldest first."""
    world.settle()
    fitted = world.accounts.fitted
    found = [
        ServingPod(each.name, fitted(each.shape, each.needs, each.gpu_fraction), each.since, rank) for each in reserving
    ]
    world.settle()  # a required affinity that nobody had before has become a label of nodes
    return sorted(found, key=lambda pod: (pod.since, pod.name))


def room_beside(world: World, pods: Iterable[ServingPod], now: float) -> Room:
    """What nobody has, was promised, or has kept for it as one of these: whoever does not ask the rules may use it. A
    pod that nobody has bound for so long that the claim gives it up has nothing kept for it."""
    kept = Kept(world.accounts.table())
    for pod in pods:
        if now < pod.since + TIMEOUT_SECONDS:
            kept.seat(pod.shape)
    return kept.room
