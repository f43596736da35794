"""Urgent SharePods: somebody's, not ours, that go before all jobs and whom we give a node and a GPU (DRAGON-40).

Room for them is made like room for serving pods, by the claim; here they are placed as soon as it is really free. What
was given counts at once, and again when the server shows it.
"""

from __future__ import annotations

import msgspec

from sterna.backends.kubernetes.api.resources import SHARE_PODS, Verb, Write
from sterna.backends.kubernetes.api.write_purpose import Placed
from sterna.backends.kubernetes.cache.cluster_state import World
from sterna.backends.kubernetes.cache.gpu_fractions import fraction_of
from sterna.backends.kubernetes.cache.reservations import room_beside, serving_reservations, urgent_reservations
from sterna.backends.kubernetes.kinds.share_pod import ShareRow, placing_patch
from sterna.engine.placement.free_capacity import Room
from sterna.model.cluster import Shape


def placements(world: World, now: float) -> list[Write]:
    """Writes that place those for whom there is room now beside serving pods, the oldest first (DRAGON-55)."""
    if not world.share_pods.urgent:
        return []
    rows = {row.key: row for row in world.share_pods.urgent.values()}
    pods = urgent_reservations(world)
    room = room_beside(world, serving_reservations(world), now)
    found = []
    for pod in pods:
        row = rows[pod.name]
        place = _place(world, room, row, pod.shape)
        if place is not None:
            found.append(_placed(world, row, *place))
    return found


def _place(world: World, room: Room, row: ShareRow, shape: Shape) -> tuple[str, str] | None:
    runs = room.tightest(shape, 1)
    if not runs:
        return None
    node = world.accounts.names[runs[0][0]]
    slots = room.take(shape, runs[0][0], 1)
    gpu = world.accounts.parts.name_of(node, slots[0]) if slots else ""
    if gpu and not world.accounts.has_parts(node, {gpu: shape.devices}):
        return None  # whoever holds it has not gone yet
    return (node, gpu) if world.accounts.has_room(node, 0, row.cpus, row.memory_bytes) else None


def _placed(world: World, row: ShareRow, node: str, gpu: str) -> Write:
    del world.share_pods.urgent[row.uid]
    if gpu and row.gpu_fraction is not None:
        part = fraction_of(row.gpu_fraction, world.accounts.gpu_memory_bytes(node))
        world.accounts.parts.hold(row.uid, node, gpu, part, is_planned=False)
    namespace, _, name = row.key.partition("/")
    body = msgspec.json.encode(placing_patch(node, gpu, str(row.version)))
    return Write(Verb.MERGE, SHARE_PODS, namespace, name, body, tag=Placed(row.uid))
