"""The nodes of a local cluster: slices of this machine, each with cores, devices and memory of its own.

`auto` makes one node of every core (at least two), or one of every GPU; `2x1cpu` or `2x4cpu1gpu,1x2cpu` say it in so
many words. Slices beyond what the machine has are allowed and said so: such nodes share cores. Nothing is enforced
here; control groups are.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.errors import UserError
from sterna.model.cluster import MILLI, Nodes, ResourceKind

_MOST_NODES = 1000
_PART = re.compile(r"(\d{1,4})x(?:(\d{1,4})cpus?)?\+?(?:(\d{1,3})gpus?)?\+?(?:(\d{1,6})(?:gb|gib|g))?", re.ASCII)
_FORM = "write auto, 2x1cpu, or 2x4cpu1gpu,1x2cpu; add ,shared to let jobs share a node's CPUs"
_GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Machine:
    """What there is to be divided."""

    cores: tuple[int, ...]
    gpus: int
    memory_bytes: int


@dataclass(frozen=True)
class LocalNode:
    """One slice."""

    name: str
    cores: tuple[int, ...]
    devices: tuple[int, ...]
    """Numbers of the machine's GPUs."""
    memory_bytes: int
    limits_memory: bool = False
    """Somebody said how much memory it has; else it is only its part of the machine's."""
    notice: str = ""


@dataclass(frozen=True)
class Slices:
    """All nodes, in the order of their names."""

    nodes: tuple[LocalNode, ...]
    is_shared: bool = False
    """Jobs that ask for no CPUs share those of their node, as many as there are."""

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def row_of(self) -> dict[str, int]:
        return {node.name: row for row, node in enumerate(self.nodes)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def table(self) -> Nodes:
        """The same as columns, empty and open."""
        capacity = np.zeros((len(ResourceKind), len(self.nodes)), dtype=np.int64)
        capacity[ResourceKind.DEVICES] = [len(node.devices) * MILLI for node in self.nodes]
        capacity[ResourceKind.CPUS] = [len(node.cores) * MILLI for node in self.nodes]
        capacity[ResourceKind.MEMORY] = [node.memory_bytes for node in self.nodes]
        count = len(self.nodes)
        names = tuple(node.name for node in self.nodes)
        return Nodes(names, capacity, capacity.copy(), np.ones(count, np.bool_), np.zeros(count, np.int64))


def this_machine() -> Machine:
    """Cores that we may use, GPUs that answer, memory that is there."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(tuple(sorted(os.sched_getaffinity(0))), _gpu_count(), pages * size)


def slice_machine(spec: str, machine: Machine, shared: bool = False) -> Slices:
    """The nodes that `--nodes` asks for."""
    parts = [part.strip().lower() for part in spec.split(",")]
    words = [part for part in parts if part.replace(" ", "") in ("shared", "shared:true", "shared=true")]
    sizes = [part for part in parts if part not in words]
    is_shared = shared or bool(words)
    if sizes in ([], ["auto"]):
        return Slices(_cut(_automatic(machine), machine), is_shared)
    return Slices(_cut([size for part in sizes for size in _sizes(spec, part, machine)], machine), is_shared)


@dataclass(frozen=True)
class _Size:
    """What one node is to have."""

    cpus: int
    gpus: int = 0
    memory_bytes: int = 0
    """0: its part of the machine's."""


def _automatic(machine: Machine) -> list[_Size]:
    count = max(2, machine.gpus or len(machine.cores))
    each, rest = divmod(len(machine.cores), count)
    return [_Size(max(1, each + (at < rest)), int(at < machine.gpus)) for at in range(count)]


def _sizes(spec: str, part: str, machine: Machine) -> list[_Size]:
    match = _PART.fullmatch(part.replace(" ", ""))
    if not match or not (match[2] or match[3]):
        raise UserError(f"--nodes {spec}: '{part}' is not of the form COUNTxCPUScpu; {_FORM}.")
    count, cpus, gpus = int(match[1]), int(match[2] or 1), int(match[3] or 0)
    memory = int(match[4] or 0) * _GIBIBYTE
    if not count or not cpus or count > _MOST_NODES:
        raise UserError(f"--nodes {spec}: give 1 to {_MOST_NODES:,} nodes of at least one CPU each; {_FORM}.")
    if cpus > len(machine.cores):
        raise UserError(
            f"--nodes {spec}: a node of {cpus} CPUs is more than this machine has ({len(machine.cores)}); {_FORM}."
        )
    return [_Size(cpus, gpus, memory)] * count


def _cut(sizes: Sequence[_Size], machine: Machine) -> tuple[LocalNode, ...]:
    """Deal out cores and GPUs in order; cores are dealt again from the first when they run out, GPUs never."""
    asked = sum(size.gpus for size in sizes)
    if asked > machine.gpus:
        found = f"has {machine.gpus}" if machine.gpus else "has none that answer"
        raise UserError(f"The nodes ask for {asked} GPUs and this machine {found}; ask for fewer with --nodes.")
    width = len(str(len(sizes) - 1))
    total = max(sum(size.cpus for size in sizes), len(machine.cores))
    given = device = 0
    nodes = []
    for number, size in enumerate(sizes):
        cores = tuple(machine.cores[(given + at) % len(machine.cores)] for at in range(size.cpus))
        shares = total > len(machine.cores)
        nodes.append(
            LocalNode(
                f"node{number:0{width}d}",
                tuple(sorted(set(cores))),
                tuple(range(device, device + size.gpus)),
                size.memory_bytes or machine.memory_bytes * size.cpus // total,
                bool(size.memory_bytes),
                f"all nodes together have {total} cores of {len(machine.cores)}" if shares else "",
            )
        )
        given += size.cpus
        device += size.gpus
    return tuple(nodes)


def _gpu_count() -> int:
    """By NVIDIA's library, else by its command; 0 where there is neither."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return _listed_gpus()
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0:
        return 0
    try:
        is_known = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        return int(count.value) if is_known else 0
    finally:
        nvml.nvmlShutdown()


def _listed_gpus() -> int:
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        answer = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
