"""Nodes, resource requests of a worker (`Shape`) and the nodes that a job runs on (`Assignment`).

Amounts are integers: devices and CPUs in thousandths, memory in bytes. The tables of nodes and shapes belong to a
`Snapshot`.
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
"""Node row of an assignment when devices are only counted (placement `none`)."""

_PLENTY = 1 << 40
"""Workers that fit on a node if they request none of its resources."""


class ResourceKind(IntEnum):
    """Rows of `Nodes.free` and `Nodes.capacity`."""

    DEVICES = 0
    CPUS = 1
    MEMORY = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests of each worker of a job and the nodes it accepts. Jobs of one shape are interchangeable to a
    placement."""

    devices: int = MILLI
    """Thousandths of a device: whole devices, or a fraction of one."""
    cpus: int = 0
    memory_bytes: int = 0
    ps: int = 0
    """Parameter servers, which start with the first worker and are never removed while the job runs."""
    ps_cpus: int = 0
    ps_memory_bytes: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    """Labels that a node must have."""
    tolerations: frozenset[str] = frozenset()
    """Taints that this job tolerates; `*` tolerates all."""
    is_shared: bool = False
    """A worker takes its device by number, as fractions do, even if it takes all of it."""
    is_fraction: bool = field(init=False, repr=False, compare=False)
    """A worker needs a fraction of a device, or takes its device as one."""
    devices_only: bool = field(init=False, repr=False, compare=False)
    """Only whole devices are requested, without node labels."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Cached: shapes are dictionary keys in hot paths."""

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
    """Nodes of a job's replicas. Worker numbers ascend along `workers`, so the last pair has the highest."""

    workers: tuple[tuple[int, int], ...] = ()
    """Pairs of node row and number of workers there."""
    ps: tuple[tuple[int, int], ...] = ()
    slots: tuple[int, ...] = ()
    """For workers on a fraction of a device: the device number of each, in worker order."""

    @property
    def size(self) -> int:
        runs = self.workers
        return runs[0][1] if len(runs) == 1 else sum([count for _, count in runs])


NOWHERE = Assignment()


@dataclass(frozen=True, eq=False)
class Shapes:
    """The distinct shapes of a snapshot's jobs; the `shape` column of `Jobs` indexes them."""

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
        """Return the cost of each shape in devices or in CPUs."""
        return self._devices if resource is ResourceKind.DEVICES else self._cpus


class CostTable(NamedTuple):
    """Cost in units, by shape: of one worker, and of all parameter servers of a job."""

    worker: Ints
    ps: Ints
    smallest: int
    has_ps: bool
    is_uniform: bool
    """All workers cost the same and no parameter server costs anything."""

    @classmethod
    def of(cls, worker: list[int], ps: list[int]) -> CostTable:
        is_uniform = len(set(worker)) == 1 and not any(ps)
        return cls(np.array(worker, dtype=np.int64), np.array(ps, dtype=np.int64), min(worker), any(ps), is_uniform)


def slots_in(free: Ints, shape: Shape) -> Ints:
    """Return how many workers of this shape fit into `free` at once, by node."""
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
    """All nodes as columns, sorted by name. Arrays are views that are valid until the next `observe`."""

    name: Sequence[str]
    capacity: Ints
    """Resource kind by node: allocatable amount."""
    free: Ints
    """Resource kind by node: amount that is free now."""
    is_open: Bools
    """Accepts new workers: ready and not cordoned."""
    rack: Ints
    labels: Sequence[Mapping[str, str]] = ()
    taints: Sequence[frozenset[str]] = ()
    shared: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Node row -> device number -> free thousandths, for devices that fractions use now. These devices are not in
    `free`."""

    def __len__(self) -> int:
        return len(self.name)

    @cached_attribute
    def unit(self) -> ResourceKind:
        """Resource that policies count: devices, or CPUs on a cluster without devices."""
        return ResourceKind.DEVICES if self.capacity[ResourceKind.DEVICES].any() else ResourceKind.CPUS

    @cached_attribute
    def rows(self) -> frozenset[int]:
        return frozenset(range(len(self.name)))

    @cached_attribute
    def is_open_to_all(self) -> bool:
        """Every node accepts any job without a node selector."""
        return bool(self.is_open.all()) and not any(self.taints)

    def most_workers(self, shapes: Shapes) -> tuple[int, ...]:
        """Return how many workers of each shape the open nodes could hold if they were empty."""
        if shapes not in self._most:
            self._most[shapes] = tuple(
                int(slots_in(self.capacity, shape)[self.accepting(shape)].sum()) for shape in shapes.rows
            )
        return self._most[shapes]

    def hosts(self, shapes: Shapes) -> tuple[int, ...]:
        """Return how many open nodes could hold at least one worker of each shape if they were empty."""
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
        """Return a mask of the open nodes whose labels and taints this shape accepts, regardless of room."""
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
