"""Room: what is free while a plan is being made. A scratch copy of the nodes that placements take from and give back
to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sterna.engine.kernels.bin_packing import best_fit
from sterna.model.cluster import MILLI, Assignment, Ints, Nodes, ResourceKind, Shape, slots_in

_DEVICES = int(ResourceKind.DEVICES)


NodeCounts = Sequence[tuple[int, int]]
"""Pairs of node row and number of workers."""


class FreeCapacity:
    """Free resources, changing as a plan grows. Lives for one placement."""

    __slots__ = ("_devices", "_takes_any", "free", "nodes", "shared")

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.free = free = nodes.free.copy()
        self._devices: Ints = free[_DEVICES]
        self._takes_any = nodes.is_open_to_all
        self.shared = {node: dict(devices) for node, devices in nodes.shared.items()} if nodes.shared else {}

    def clone(self) -> FreeCapacity:
        """Another one in the same state."""
        other = FreeCapacity(self.nodes)
        other.free[:] = self.free
        other.shared = {node: dict(devices) for node, devices in self.shared.items()}
        return other

    def slots(self, shape: Shape) -> Ints:
        """How many more workers of this shape each node can take."""
        slots = slots_in(self.free, shape)
        if shape.is_fraction and self.shared:
            slots = self._add_shared_slots(slots, shape)
        if self._takes_any and not shape.selector:
            return slots
        return slots * self.nodes.accepting(shape)

    def slots_beside(self, shape: Shape) -> Ints:
        """How many workers each node could take beside all parameter servers of the job."""
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
        """How many more workers of this shape one node can take."""
        if shape.devices_only and self._takes_any:
            return int(self._devices.item(node)) // shape.devices
        return int(self.slots(shape).item(node))

    def free_and_need(self, shape: Shape) -> tuple[Ints, int]:
        """What is compared to find a tight node: what each has free, and how much of that one worker takes."""
        if shape.devices_only and self._takes_any:
            return self._devices, shape.devices
        return self.slots(shape), 1

    def tightest(self, shape: Shape, count: int, avoid: Collection[int] = ()) -> NodeCounts:
        """Runs of (node, workers) for so many workers, or for as many as there is room for: the node with least room
        that holds them all; if none does, the one with most room, and so on with the rest."""
        free, need = self.free_and_need(shape)
        if avoid:
            free = free.copy()
            free[list(avoid)] = 0
        return best_fit(free, need, count)[0]

    def take_tightest(self, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        """The same for up to `jobs` equal jobs, one after the other, as long as there is room for all of one: taken."""
        free, need = self.free_and_need(shape)
        if count * need <= free.max(initial=0):
            return self.best_fit(shape, count, jobs)
        many = best_fit(free, need, count, jobs)
        if sum([here for _, here in many[-1]]) < count:
            many.pop()
        if many:
            nodes, counts = np.array([run for runs in many for run in runs]).T
            self.take_all(shape, np.bincount(nodes, counts, len(free)).astype(np.int64))
        return many

    def best_fit(self, shape: Shape, count: int, jobs: int) -> list[NodeCounts]:
        """One node each for up to `jobs` equal jobs in one step, by room ascending, each as often as it can; taken.

        None for jobs larger than the roomiest node: which nodes those share is what placements differ in.
        """
        free, need = self.free_and_need(shape)
        order = free.argsort(kind="stable")
        nodes = np.repeat(order, np.clip(free[order] // (need * count), 0, jobs))[:jobs]
        return self.take_one_node_each(shape, count, nodes)

    def take_one_node_each(self, shape: Shape, count: int, nodes: Ints) -> list[NodeCounts]:
        """So many workers for one job after the other, each on one node: taken."""
        self.take_all(shape, np.bincount(nodes, minlength=len(self.nodes)) * count)
        return [((node, count),) for node in nodes.tolist()]

    def take_workers(self, shape: Shape, runs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Put workers on nodes; for parts of devices, the numbers of the devices they share."""
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
        """The same on one node."""
        if not shape.devices_only:
            self._move(shape.cpus, shape.memory_bytes, node, -count)
        if not shape.is_fraction:
            self._devices[node] -= count * shape.devices
            return ()
        return tuple(self._take_part(shape.devices, node) for _ in range(count))

    def take_whole_devices(self, shape: Shape, node: int, count: int) -> None:
        """Take whole devices, CPUs and memory of so many workers off a node without remembering whose they are; give
        them back if below 0."""
        self._move(shape.cpus, shape.memory_bytes, node, -count)
        self._devices[node] -= count * shape.devices

    def take_ps(self, shape: Shape, node: int, count: int) -> None:
        self._move(shape.ps_cpus, shape.ps_memory_bytes, node, -count)

    def give(self, shape: Shape, assignment: Assignment) -> None:
        """Take a whole job off its nodes."""
        if shape.devices_only:
            devices, need = self._devices, shape.devices
            for node, count in assignment.workers:
                devices[node] += count * need
            return
        self._apply(shape, assignment, 1)

    def occupy(self, shape: Shape, assignment: Assignment) -> None:
        """Put a job where it is known to sit, on the very devices it shares."""
        if shape.devices_only:
            devices, need = self._devices, shape.devices
            for node, count in assignment.workers:
                devices[node] -= count * need
            return
        self._apply(shape, assignment, -1)

    def _apply(self, shape: Shape, assignment: Assignment, sign: int) -> None:
        """Give back (1) or take (-1) all that a home holds."""
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
        """Put so many workers on each node, whole devices only."""
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
        """The shared device with least room that still fits; a whole device is opened only if none does."""
        devices = self.shared.get(node, {})
        fitting = [(free, number) for number, free in devices.items() if free >= part]
        number = min(fitting)[1] if fitting else next(n for n in range(len(devices) + 1) if n not in devices)
        self._change_part(-part, node, number)
        return number

    def _change_part(self, change: int, node: int, number: int) -> None:
        """Give back to a shared device or take from it; it is opened when first shared and closed when nobody does."""
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
