"""Free capacity while a plan is made: a scratch copy of the nodes that placements take from and return to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sterna.engine.kernels.bin_packing import best_fit
from sterna.model.cluster import MILLI, Assignment, Ints, Nodes, ResourceKind, Shape, slots_in

_DEVICES = int(ResourceKind.DEVICES)


NodeCounts = Sequence[tuple[int, int]]
"""Pairs of node row and number of workers."""


class FreeCapacity:
    """Free resources of all nodes, changed as workers are placed and released. Used for one placement."""

    __slots__ = ("_devices", "_takes_any", "free", "nodes", "shared")

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.free = free = nodes.free.copy()
        self._devices: Ints = free[_DEVICES]
        self._takes_any = nodes.is_open_to_all
        self.shared = {node: dict(devices) for node, devices in nodes.shared.items()} if nodes.shared else {}

    def clone(self) -> FreeCapacity:
        """Return an independent copy."""
        other = FreeCapacity(self.nodes)
        other.free[:] = self.free
        other.shared = {node: dict(devices) for node, devices in self.shared.items()}
        return other

    def slots(self, shape: Shape) -> Ints:
        """Return how many more workers of this shape each node can take."""
        slots = slots_in(self.free, shape)
        if shape.is_fraction and self.shared:
            slots = self._add_shared_slots(slots, shape)
        if self._takes_any and not shape.selector:
            return slots
        return slots * self.nodes.accepting(shape)

    def slots_beside(self, shape: Shape) -> Ints:
        """Return how many workers each node could take in addition to all parameter servers of the job."""
        whole = self.free
        self.free = self.free.copy()
        self.free[ResourceKind.CPUS] -= shape.ps * shape.ps_cpus
        self.free[ResourceKind.MEMORY] -= shape.ps * shape.ps_memory_bytes
        slots = np.maximum(self.slots(shape), 0)
        self.free = whole
        return slots

    def _add_shared_slots(self, slots: Ints, shape: Shape) -> Ints:
        slots = slots.copy()
        whole = Shape(devices=0, cpus=shape.cpus, memory_bytes=shape.memory_bytes)
        bound = slots_in(self.free, whole)
        for node, devices in self.shared.items():
            extra = sum(free // shape.devices for free in devices.values())
            opened = int(self.free[ResourceKind.DEVICES, node]) // MILLI * (MILLI // shape.devices)
            slots[node] = min(int(bound[node]), opened + extra)
        return slots

    def slots_at(self, shape: Shape, node: int) -> int:
        """Return how many more workers of this shape one node can take."""
        if shape.devices_only and self._takes_any:
            return int(self._devices.item(node)) // shape.devices
        return int(self.slots(shape).item(node))

    def free_and_need(self, shape: Shape) -> tuple[Ints, int]:
        """Return the free amount by which nodes are compared, and how much of it one worker takes."""
        if shape.devices_only and self._takes_any:
            return self._devices, shape.devices
        return self.slots(shape), 1

    def tightest(self, shape: Shape, count: int, avoid: Collection[int] = ()) -> NodeCounts:
        """Return (node, workers) pairs for `count` workers, or as many as fit, without taking them: the node with least
        room that holds all of them, else the node with most room, and so on with the remaining workers."""
        free, need = self.free_and_need(shape)
        if avoid:
            free = free.copy()
            free[list(avoid)] = 0
        return best_fit(free, need, count)[0]

    def take_tightest(self, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        """Take what `tightest` returns for up to `jobs` equal jobs, one by one, until one does not fit whole."""
        free, need = self.free_and_need(shape)
        if count * need <= free.max(initial=0):
            return self.take_best_fit(shape, count, jobs)
        many = best_fit(free, need, count, jobs)
        if sum([here for _, here in many[-1]]) < count:
            many.pop()
        if many:
            nodes, counts = np.array([run for runs in many for run in runs]).T
            self.take_all(shape, np.bincount(nodes, counts, len(free)).astype(np.int64))
        return many

    def take_best_fit(self, shape: Shape, count: int, jobs: int) -> list[NodeCounts]:
        """Take one node each for up to `jobs` equal jobs in one step: nodes by rising room, each as often as it fits.

        Jobs larger than every node get none, because placements divide those in different ways.
        """
        free, need = self.free_and_need(shape)
        order = free.argsort(kind="stable")
        nodes = np.repeat(order, np.clip(free[order] // (need * count), 0, jobs))[:jobs]
        return self.take_one_node_each(shape, count, nodes)

    def take_one_node_each(self, shape: Shape, count: int, nodes: Ints) -> list[NodeCounts]:
        """Take `count` workers on each of `nodes`, one node for each job."""
        self.take_all(shape, np.bincount(nodes, minlength=len(self.nodes)) * count)
        return [((node, count),) for node in nodes.tolist()]

    def take_workers(self, shape: Shape, runs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Take workers on nodes; return the numbers of the shared devices, if the shape takes parts of devices."""
        if shape.devices_only:
            devices, need = self._devices, shape.devices
            for node, count in runs:
                devices[node] -= count * need
            return ()
        slots: tuple[int, ...] = ()
        for node, count in runs:
            slots += self.take(shape, node, count)
        return slots

    def take(self, shape: Shape, node: int, count: int) -> tuple[int, ...]:
        """Take workers on one node; return the numbers of the shared devices, if the shape takes parts of devices."""
        if not shape.devices_only:
            self._move(shape.cpus, shape.memory_bytes, node, -count)
        if not shape.is_fraction:
            self._devices[node] -= count * shape.devices
            return ()
        return tuple(self._take_part(shape.devices, node) for _ in range(count))

    def take_whole_devices(self, shape: Shape, node: int, count: int) -> None:
        """Take whole devices, CPUs and memory of `count` workers on a node, or return them if `count` is below 0."""
        self._move(shape.cpus, shape.memory_bytes, node, -count)
        self._devices[node] -= count * shape.devices

    def take_ps(self, shape: Shape, node: int, count: int) -> None:
        self._move(shape.ps_cpus, shape.ps_memory_bytes, node, -count)

    def release(self, shape: Shape, assignment: Assignment) -> None:
        """Return all resources of an assignment to its nodes."""
        if shape.devices_only:
            devices, need = self._devices, shape.devices
            for node, count in assignment.workers:
                devices[node] += count * need
            return
        self._apply(shape, assignment, 1)

    def occupy(self, shape: Shape, assignment: Assignment) -> None:
        """Take all resources of an assignment, on the shared devices that it names."""
        if shape.devices_only:
            devices, need = self._devices, shape.devices
            for node, count in assignment.workers:
                devices[node] -= count * need
            return
        self._apply(shape, assignment, -1)

    def _apply(self, shape: Shape, assignment: Assignment, sign: int) -> None:
        """Return (`sign` 1) or take (`sign` -1) all resources of an assignment."""
        devices, need = self._devices, sign * shape.devices
        for node, count in assignment.ps:
            self._move(shape.ps_cpus, shape.ps_memory_bytes, node, sign * count)
        device = iter(assignment.slots)
        for node, count in assignment.workers:
            self._move(shape.cpus, shape.memory_bytes, node, sign * count)
            if not shape.is_fraction:
                devices[node] += count * need
                continue
            for _ in range(count):
                self._change_part(need, node, next(device))

    def take_all(self, shape: Shape, workers: Ints) -> None:
        """Take `workers[node]` workers on each node; whole devices only."""
        for resource, need in (
            (ResourceKind.DEVICES, shape.devices),
            (ResourceKind.CPUS, shape.cpus),
            (ResourceKind.MEMORY, shape.memory_bytes),
        ):
            if need:
                self.free[resource] -= workers * need

    def _move(self, cpus: int, memory_bytes: int, node: int, count: int) -> None:
        if cpus:
            self.free[ResourceKind.CPUS, node] += count * cpus
        if memory_bytes:
            self.free[ResourceKind.MEMORY, node] += count * memory_bytes

    def _take_part(self, part: int, node: int) -> int:
        """Take a part of the tightest shared device that fits, else of a whole device; return the device's number."""
        devices = self.shared.get(node, {})
        fitting = [(free, number) for number, free in devices.items() if free >= part]
        number = min(fitting)[1] if fitting else next(n for n in range(len(devices) + 1) if n not in devices)
        self._change_part(-part, node, number)
        return number

    def _change_part(self, change: int, node: int, number: int) -> None:
        """Return a part of a shared device or take one. A device with all parts returned is whole again."""
        devices = self.shared.setdefault(node, {})
        if number not in devices:
            devices[number] = MILLI
            self._devices[node] -= MILLI
        devices[number] += change
        if devices[number] >= MILLI:
            del devices[number]
            self._devices[node] += MILLI
        if not devices:
            del self.shared[node]
