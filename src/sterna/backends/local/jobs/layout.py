"""From desired node counts to replicas. Pure.

Worker indices follow the node counts from left to right. Replicas that are not scaled (parameter servers, a chief, a
launcher) take the other nodes in the order of the specification. A replica without a command is never started: an MPI
job's workers are started by its launcher, which runs on the node of the first one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.backends.local.store.node_slices import LocalNode
from sterna.backends.local.store.records import AttemptRecord, JobRecord, NodeWorkers, ReplicaRecord
from sterna.kinds.environment.gang import rank_order
from sterna.model.cluster import MILLI, Shape
from sterna.model.job import ReplicaSpec, Resizing


def expand_nodes(seats: NodeWorkers) -> list[str]:
    """Return one node name per replica."""
    return [name for name, count in seats for _ in range(count)]


def size_of(seats: Sequence[tuple[str, int]]) -> int:
    return sum(count for _, count in seats)


def count_by_node(names: Sequence[str]) -> NodeWorkers:
    """Return node counts, with equal neighbours merged."""
    seats: NodeWorkers = []
    for name in names:
        if seats and seats[-1][0] == name:
            seats[-1] = (name, seats[-1][1] + 1)
        else:
            seats.append((name, 1))
    return seats


def spec_of(job: JobRecord, replica_type: str) -> ReplicaSpec:
    return next(each for each in job.spec.replicas if each.type == replica_type)


def lay_out_replicas(job: JobRecord) -> list[ReplicaRecord]:
    """Return the replicas of a new attempt in rank order, without ports and devices."""
    workers, others = expand_nodes(job.workers), expand_nodes(job.servers)
    planned: list[tuple[ReplicaSpec, int, str, int]] = []
    for spec in job.spec.replicas:
        is_scaled = spec is job.spec.worker
        nodes = workers if is_scaled else [others.pop(0) for _ in range(spec.count)]
        if not (is_scaled or job.spec.worker.command):
            nodes = workers[:1] * spec.count
        for index, node in enumerate(nodes):
            slot = job.slots[index] if is_scaled and job.slots else -1
            if spec.command:
                planned.append((spec, index, node, slot))
    planned.sort(key=lambda each: rank_order((each[0].type, each[1])))
    return [
        ReplicaRecord(spec.type, index, rank, node, secrets.token_hex(8), slot=slot)
        for rank, (spec, index, node, slot) in enumerate(planned)
    ]


def is_host(job: JobRecord, attempt: AttemptRecord, replica: ReplicaRecord) -> bool:
    """True if the replica is the rendezvous host (torchrun's first agent), without which the others cannot go on."""
    return job.spec.resizing is Resizing.TORCHRUN and replica is attempt.first


@dataclass(frozen=True)
class LayoutChange:
    """Changes that bring a running attempt to its desired layout in place."""

    moved: list[tuple[ReplicaRecord, str]]
    """Replicas and their new nodes."""
    leaving: list[ReplicaRecord]
    arriving: list[tuple[str, int]]
    """Nodes of new workers, with the device slot for GPU fractions."""


def plan_layout_change(job: JobRecord, attempt: AttemptRecord) -> LayoutChange:
    """Return the smallest change: keep workers in place, then move, then remove the highest indices, except the
    rendezvous host."""
    scaled = job.spec.worker.type
    workers = sorted((each for each in attempt.members if each.type == scaled), key=lambda each: each.index)
    names = expand_nodes(job.workers)
    wanted = Counter(zip(names, job.slots or [-1] * len(names), strict=True))
    astray: list[ReplicaRecord] = []
    for worker in workers:
        if wanted[worker.node, worker.slot] > 0:
            wanted[worker.node, worker.slot] -= 1
        else:
            astray.append(worker)
    open_seats = list(wanted.elements())
    if astray and not open_seats and is_host(job, attempt, astray[0]):
        last = next(each for each in reversed(workers) if each not in astray)
        open_seats, astray = [(last.node, last.slot)], [*astray, last]
    moved = [(worker, node) for worker, (node, _) in zip(astray, open_seats, strict=False)]
    others = [each for each in attempt.members if each.type != scaled]
    seats = expand_nodes(job.servers)
    moved += [(each, assign) for each, assign in zip(others, seats, strict=False) if each.node != assign]
    return LayoutChange(moved, astray[len(open_seats) :], open_seats[len(astray) :])


def devices_for(node: LocalNode, shape: Shape, slot: int, present: Sequence[ReplicaRecord]) -> list[int] | None:
    """Return the devices for one more worker on a node; None while other replicas hold them."""
    if not shape.devices:
        return []
    here = [each for each in present if each.node == node.name and each.devices]
    if shape.is_fraction:
        beside = [each.devices for each in here if each.slot == slot]
        if beside:
            return list(beside[0])
    held = {device for each in here for device in each.devices}
    free = [device for device in node.devices if device not in held]
    count = 1 if shape.is_fraction else shape.devices // MILLI
    return free[:count] if len(free) >= count else None


def over_committed(held: Mapping[str, tuple[int, int]], nodes: Mapping[str, LocalNode]) -> bool:
    """True if a node holds more CPUs (in thousandths) or memory than it has."""
    return any(
        cpus > len(nodes[name].cores) * MILLI or memory > nodes[name].memory_bytes
        for name, (cpus, memory) in held.items()
    )


def held_resources(shape: Shape, workers: NodeWorkers, servers: NodeWorkers) -> dict[str, tuple[int, int]]:
    """Return CPUs and memory that a job with this layout holds, by node."""
    held: dict[str, tuple[int, int]] = {}
    needs = ((workers, shape.cpus, shape.memory_bytes), (servers, shape.ps_cpus, shape.ps_memory_bytes))
    for seats, cpus, memory in needs:
        for name, count in seats:
            old = held.get(name, (0, 0))
            held[name] = (old[0] + count * cpus, old[1] + count * memory)
    return held
