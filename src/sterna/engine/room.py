"""Room: what is free while a plan is being made. A scratch copy of the nodes that placements take from and give back
to."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sterna.engine.bins import Bins
from sterna.model.cluster import MILLI, Home, Ints, Nodes, Resource, Shape, slots_in

_PLENTY = 1 << 40
"""Workers that fit on a node of which they need nothing."""


class Room:
    """Free resources, changing as a plan grows. Lives for one placement."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.free = nodes.free.copy()
        self._devices = self.free[Resource.DEVICES]
        self._expects_many = False
        self._bins: dict[int, Bins] = {}
        self.shared = {node: dict(devices) for node, devices in nodes.shared.items()} if nodes.shared else {}

    def slots(self, shape: Shape) -> Ints:
        """How many more workers of this shape each node can take."""
        slots = slots_in(self.free, shape)
        if shape.is_fraction and self.shared:
            slots = self._with_shared(slots, shape)
        return slots if self.nodes.takes_all(shape) else slots * self.nodes.accepting(shape)

    def slots_beside(self, shape: Shape) -> Ints:
        """How many workers each node could take beside all parameter servers of the job."""
        whole = self.free
        self.free = self.free.copy()
        self.free[Resource.CPUS] -= shape.ps * shape.ps_cpus
        self.free[Resource.MEMORY] -= shape.ps * shape.ps_memory_bytes
        slots = np.maximum(self.slots(shape), 0)
        self.free = whole
        return slots

    def _with_shared(self, slots: Ints, shape: Shape) -> Ints:
        slots = slots.copy()
        whole = Shape(devices=0, cpus=shape.cpus, memory_bytes=shape.memory_bytes)
        bound = slots_in(self.free, whole)
        for node, devices in self.shared.items():
            extra = sum(free // shape.devices for free in devices.values())
            opened = int(self.free[Resource.DEVICES, node]) // MILLI * (MILLI // shape.devices)
            slots[node] = min(int(bound[node]), opened + extra)
        return slots

    def expect_many(self) -> None:
        """Many jobs are about to be placed: keep an index of nodes by room."""
        self._expects_many = True

    def slots_at(self, shape: Shape, node: int) -> int:
        """How many more workers of this shape one node can take."""
        if shape.is_plain and self.nodes.takes_all(shape):
            return self._devices.item(node) // shape.devices if shape.devices else _PLENTY
        return self.slots(shape).item(node)

    def tightest(self, shape: Shape, count: int, avoid: Collection[int] = ()) -> tuple[int, int]:
        """The node with least room that holds so many workers, else the one with most, and its slots (0: all are
        full)."""
        if self._expects_many and shape.is_plain and shape.devices and self.nodes.takes_all(shape):
            if shape.devices not in self._bins:
                self._bins[shape.devices] = Bins(self._devices, shape.devices)
            return self._bins[shape.devices].find(count, avoid)
        slots = self.slots(shape)
        if avoid:
            slots[list(avoid)] = 0
        spare = (slots - count).view(np.uint64)
        node = int(spare.argmin())
        if slots.item(node) < count:
            node = int(slots.argmax())
        return node, slots.item(node)

    def take(self, shape: Shape, node: int, count: int) -> tuple[int, ...]:
        """Put workers on a node; for parts of devices, the numbers of the devices they share."""
        if not shape.is_plain:
            self._move(shape.cpus, shape.memory_bytes, node, -count)
        for bins in self._bins.values():
            bins.note(node)
        if not shape.is_fraction:
            self._devices[node] -= count * shape.devices
            return ()
        return tuple(self._take_part(shape.devices, node) for _ in range(count))

    def take_ps(self, shape: Shape, node: int, count: int) -> None:
        self._move(shape.ps_cpus, shape.ps_memory_bytes, node, -count)

    def give(self, shape: Shape, home: Home) -> None:
        """Take a whole job off its nodes."""
        self._seat(shape, home, 1)

    def occupy(self, shape: Shape, home: Home) -> None:
        """Put a job where it is known to sit, on the very devices it shares."""
        self._seat(shape, home, -1)

    def _seat(self, shape: Shape, home: Home, sign: int) -> None:
        """Give back (1) or take (-1) all that a home holds."""
        devices, need = self._devices, sign * shape.devices
        if shape.is_plain:
            for node, count in home.workers:
                devices[node] += count * need
            return
        for node, count in home.ps:
            self._move(shape.ps_cpus, shape.ps_memory_bytes, node, sign * count)
        device = iter(home.slots)
        for node, count in home.workers:
            self._move(shape.cpus, shape.memory_bytes, node, sign * count)
            if not shape.is_fraction:
                devices[node] += count * need
                continue
            for _ in range(count):
                self._share(need, node, next(device))

    def take_all(self, shape: Shape, workers: Ints) -> None:
        """Put so many workers on each node, whole devices only."""
        for bins in self._bins.values():
            for node in workers.nonzero()[0].tolist():
                bins.note(node)
        for resource, need in (
            (Resource.DEVICES, shape.devices),
            (Resource.CPUS, shape.cpus),
            (Resource.MEMORY, shape.memory_bytes),
        ):
            if need:
                self.free[resource] -= workers * need

    def _move(self, cpus: int, memory_bytes: int, node: int, count: int) -> None:
        if cpus:
            self.free[Resource.CPUS, node] += count * cpus
        if memory_bytes:
            self.free[Resource.MEMORY, node] += count * memory_bytes

    def _take_part(self, part: int, node: int) -> int:
        """The shared device with least room that still fits; a whole device is opened only if none does."""
        devices = self.shared.get(node, {})
        fitting = [(free, number) for number, free in devices.items() if free >= part]
        number = min(fitting)[1] if fitting else next(n for n in range(len(devices) + 1) if n not in devices)
        self._share(-part, node, number)
        return number

    def _share(self, change: int, node: int, number: int) -> None:
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
