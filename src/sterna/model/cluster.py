"""Nodes, what a worker needs of one, and where a job sits.

Everything is counted in whole numbers: devices and CPUs in thousandths, memory in bytes. A node or a shape is a
value; the tables of them live in a `Snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sterna.model.cached_attribute import cached_attribute

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

MILLI = 1000
"""One whole device, or one whole CPU."""

ANYWHERE = -1
"""The node of a home when devices are only counted (placement `none`)."""

_PLENTY = 1 << 40
"""Workers that fit on a node of which they need nothing."""


class ResourceKind(IntEnum):
    """Rows of `Nodes.free` and `Nodes.capacity`."""

    DEVICES = 0
    CPUS = 1
    MEMORY = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What each worker of a job needs, and which nodes it accepts. Jobs of one shape are interchangeable to a
    placement."""

    devices: int = MILLI
    """Thousandths of a device: whole devices, or a part of one."""
    cpus: int = 0
    memory_bytes: int = 0
    ps: int = 0
    """Parameter servers, which start with the first worker and are never removed while the job runs."""
    ps_cpus: int = 0
    ps_memory_bytes: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    """Labels that a node must carry."""
    tolerations: frozenset[str] = frozenset()
    """Taints that do not keep this job away; `*` tolerates all."""
    is_shared: bool = False
    """A worker takes its device as a part, by number, even where that part is all of it."""
    is_fraction: bool = field(init=False, repr=False, compare=False)
    """A worker needs a part of a device only, or takes it as one."""
    devices_only: bool = field(init=False, repr=False, compare=False)
    """Nothing counts but whole devices, on any node."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Shapes are looked up all the time."""

    def __post_init__(self) -> None:
        fields = (self.devices, self.cpus, self.memory_bytes, self.ps, self.ps_cpus, self.ps_memory_bytes)
        is_fraction = 0 < self.devices < MILLI or (self.is_shared and self.devices == MILLI)
        object.__setattr__(self, "is_fraction", is_fraction)
        plain = self.devices >= MILLI and not self.devices % MILLI and not any(fields[1:]) and not self.selector
        object.__setattr__(self, "devices_only", plain and not self.is_shared)
        object.__setattr__(self, "_hash", hash((fields, self.selector, self.tolerations, self.is_shared)))

    def __hash__(self) -> int:
        return self._hash

    def accepts(self, labels: Mapping[str, str], taints: frozenset[str]) -> bool:
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return "*" in self.tolerations or taints <= self.tolerations


class Assignment(NamedTuple):
    """Where a job's replicas sit. Worker numbers run through `workers` from the left, so the tail holds the highest."""

    workers: tuple[tuple[int, int], ...] = ()
    """Pairs of node row and number of workers there."""
    ps: tuple[tuple[int, int], ...] = ()
    slots: tuple[int, ...] = ()
    """For workers that need a part of a device: which device of its node each one shares, in worker order."""

    @property
    def size(self) -> int:
        runs = self.workers
        return runs[0][1] if len(runs) == 1 else sum([count for _, count in runs])


NOWHERE = Assignment()


@dataclass(frozen=True, eq=False)
class Shapes:
    """The distinct shapes of a snapshot's jobs; a job's `shape` column says which is its own."""

    rows: tuple[Shape, ...] = (Shape(),)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, code: int) -> Shape:
        return self.rows[code]

    @cached_attribute
    def _devices(self) -> CostTable:
        return CostTable.of([shape.devices for shape in self.rows], [0 for _ in self.rows])

    @cached_attribute
    def _cpus(self) -> CostTable:
        return CostTable.of([shape.cpus for shape in self.rows], [shape.ps * shape.ps_cpus for shape in self.rows])

    def cost_table(self, resource: ResourceKind) -> CostTable:
        """The units of each shape, in devices or in CPUs."""
        return self._devices if resource is ResourceKind.DEVICES else self._cpus


class CostTable(NamedTuple):
    """What policies count: units of one worker and of all parameter servers, by shape."""

    worker: Ints
    ps: Ints
    smallest: int
    has_ps: bool
    is_uniform: bool
    """All workers need the same, and nobody has parameter servers that count."""

    @classmethod
    def of(cls, worker: list[int], ps: list[int]) -> CostTable:
        is_uniform = len(set(worker)) == 1 and not any(ps)
        return cls(np.array(worker, dtype=np.int64), np.array(ps, dtype=np.int64), min(worker), any(ps), is_uniform)


def slots_in(free: Ints, shape: Shape) -> Ints:
    """How many workers of this shape each node could hold beside each other, given what is free there."""
    slots: Ints | None = None
    if shape.devices >= MILLI:
        slots = free[ResourceKind.DEVICES] // shape.devices
    elif shape.devices:
        slots = free[ResourceKind.DEVICES] // MILLI * (MILLI // shape.devices)
    for resource, need in ((ResourceKind.CPUS, shape.cpus), (ResourceKind.MEMORY, shape.memory_bytes)):
        if need:
            more = free[resource] // need
            slots = more if slots is None else np.minimum(slots, more)
    return np.full(free.shape[1], _PLENTY) if slots is None else slots


@dataclass(frozen=True)
class Nodes:
    """All nodes as columns, in the order of their names. Arrays are views that hold until the next `observe`."""

    name: Sequence[str]
    capacity: Ints
    """Resource by node, what may be used at all."""
    free: Ints
    """Resource by node, what nobody uses now."""
    is_open: Bools
    """Takes new workers: up, ready and not cordoned."""
    rack: Ints
    labels: Sequence[Mapping[str, str]] = ()
    taints: Sequence[frozenset[str]] = ()
    shared: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Node row -> device number -> free thousandths, for devices that are shared now. A shared device is not in
    `free`."""

    def __len__(self) -> int:
        return len(self.name)

    @cached_attribute
    def unit(self) -> ResourceKind:
        """What policies count: devices, or CPUs on a cluster that has none."""
        return ResourceKind.DEVICES if self.capacity[ResourceKind.DEVICES].any() else ResourceKind.CPUS

    @cached_attribute
    def rows(self) -> frozenset[int]:
        return frozenset(range(len(self.name)))

    @cached_attribute
    def is_open_to_all(self) -> bool:
        """Every node takes any job that does not ask for labels."""
        return bool(self.is_open.all()) and not any(self.taints)

    def most_workers(self, shapes: Shapes) -> tuple[int, ...]:
        """How many workers of each shape the open nodes could hold if they were empty."""
        if shapes not in self._most:
            self._most[shapes] = tuple(
                int(slots_in(self.capacity, shape)[self.accepting(shape)].sum()) for shape in shapes.rows
            )
        return self._most[shapes]

    def hosts(self, shapes: Shapes) -> tuple[int, ...]:
        """How many open nodes could hold at least one worker of each shape if they were empty."""
        if shapes not in self._hosts:
            self._hosts[shapes] = tuple(
                int((slots_in(self.capacity, shape)[self.accepting(shape)] > 0).sum()) for shape in shapes.rows
            )
        return self._hosts[shapes]

    @cached_attribute
    def _hosts(self) -> dict[Shapes, tuple[int, ...]]:
        return {}

    @cached_attribute
    def _most(self) -> dict[Shapes, tuple[int, ...]]:
        return {}

    @cached_attribute
    def _has_taints(self) -> bool:
        return any(self.taints)

    @cached_attribute
    def _fitting(self) -> dict[tuple[object, object], Bools]:
        return {}

    def accepting(self, shape: Shape) -> Bools:
        """Nodes on which a worker of this shape may be put, were there room."""
        if not shape.selector and not self._has_taints:
            return self.is_open
        terms = shape.selector, shape.tolerations
        fits = self._fitting.get(terms)
        if fits is None:
            fits = self._fitting[terms] = np.array(self._fits(shape), dtype=np.bool_)
        return self.is_open & fits

    def _fits(self, shape: Shape) -> list[bool]:
        labels = self.labels or ({},) * len(self)
        taints = self.taints or (frozenset[str](),) * len(self)
        return [shape.accepts(*each) for each in zip(labels, taints, strict=True)]
