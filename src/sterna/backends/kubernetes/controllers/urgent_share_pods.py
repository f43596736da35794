"""Urgent SharePods: somebody's, not ours, that go before all jobs and whom we give a node and a GPU (DRAGON-40).

Room for them is made like room for serving pods, by the claim; here they are placed as soon as it is really free. What
was given counts at once, and again when the server shows it.
"""

from __future__ import annotations

import msgspec

from sterna.backends.kubernetes.api.resources import Verb, Write
from sterna.backends.kubernetes.api.write_purpose import Placed
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.gpu_fractions import gpu_fraction_milli
from sterna.backends.kubernetes.cache.reservations import room_beside, serving_reservations, urgent_reservations
from sterna.backends.kubernetes.pods.share_rows import ShareRow, placing_patch
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.kinds.share_pod import SHARE_PODS
from sterna.model.cluster import Shape


def placements(state: ClusterState, now: float) -> list[Write]:
    """Writes that place those for whom there is room now beside serving pods, the oldest first (DRAGON-55)."""
    if not state.share_pods.urgent:
        return []
    rows = {row.key: row for row in state.share_pods.urgent.values()}
    pods = urgent_reservations(state)
    room = room_beside(state, serving_reservations(state), now)
    found = []
    for pod in pods:
        row = rows[pod.name]
        place = _place(state, room, row, pod.shape)
        if place is not None:
            found.append(_placed(state, row, *place))
    return found


def _place(state: ClusterState, room: FreeCapacity, row: ShareRow, shape: Shape) -> tuple[str, str] | None:
    runs = room.tightest(shape, 1)
    if not runs:
        return None
    node = state.capacity.names[runs[0][0]]
    slots = room.take(shape, runs[0][0], 1)
    gpu = state.capacity.parts.name_of(node, slots[0]) if slots else ""
    if gpu and not state.capacity.has_parts(node, {gpu: shape.devices}):
        return None  # whoever holds it has not gone yet
    return (node, gpu) if state.capacity.has_room(node, 0, row.cpus, row.memory_bytes) else None


def _placed(state: ClusterState, row: ShareRow, node: str, gpu: str) -> Write:
    del state.share_pods.urgent[row.uid]
    if gpu and row.gpu_fraction is not None:
        part = gpu_fraction_milli(row.gpu_fraction, state.capacity.gpu_memory_bytes(node))
        state.capacity.parts.hold(row.uid, node, gpu, part, is_planned=False)
    namespace, _, name = row.key.partition("/")
    body = msgspec.json.encode(placing_patch(node, gpu, str(row.version)))
    return Write(Verb.MERGE, SHARE_PODS, namespace, name, body, tag=Placed(row.uid))
