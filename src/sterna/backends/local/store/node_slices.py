"""The nodes of a local cluster: slices of this machine, each with cores, devices and memory of its own.

`auto` makes one node per core (at least two) or per GPU; `2x1cpu` and `2x4cpu1gpu,1x2cpu` are explicit. Slices may
exceed the machine: such nodes share cores, with a notice. Limits are enforced by control groups, not here.
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
    """Capacity of the machine."""

    cores: tuple[int, ...]
    gpus: int
    memory_bytes: int


@dataclass(frozen=True)
class LocalNode:
    """One slice of the machine."""

    name: str
    cores: tuple[int, ...]
    devices: tuple[int, ...]
    """Indices of the machine's GPUs."""
    memory_bytes: int
    limits_memory: bool = False
    """Its memory was given explicitly and is enforced; else it is its part of the machine's."""
    notice: str = ""


@dataclass(frozen=True)
class Slices:
    """All nodes, ordered by name."""

    nodes: tuple[LocalNode, ...]
    is_shared: bool = False
    """Jobs without a CPU request share the CPUs of their node, in any number."""

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def row_of(self) -> dict[str, int]:
        return {node.name: row for row, node in enumerate(self.nodes)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def table(self) -> Nodes:
        """Return the nodes as columns, empty and open."""
        capacity = np.zeros((len(ResourceKind), len(self.nodes)), dtype=np.int64)
        capacity[ResourceKind.DEVICES] = [len(node.devices) * MILLI for node in self.nodes]
        capacity[ResourceKind.CPUS] = [len(node.cores) * MILLI for node in self.nodes]
        capacity[ResourceKind.MEMORY] = [node.memory_bytes for node in self.nodes]
        count = len(self.nodes)
        names = tuple(node.name for node in self.nodes)
        return Nodes(names, capacity, capacity.copy(), np.ones(count, np.bool_), np.zeros(count, np.int64))


def this_machine() -> Machine:
    """Return the cores in our affinity mask, the usable GPUs and the physical memory."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(tuple(sorted(os.sched_getaffinity(0))), _gpu_count(), pages * size)


def slice_machine(spec: str, machine: Machine, shared: bool = False) -> Slices:
    """Parse `--nodes` and divide the machine."""
    parts = [part.strip().lower() for part in spec.split(",")]
    words = [part for part in parts if part.replace(" ", "") in ("shared", "shared:true", "shared=true")]
    sizes = [part for part in parts if part not in words]
    is_shared = shared or bool(words)
    if sizes in ([], ["auto"]):
        return Slices(_allocate(_automatic(machine), machine), is_shared)
    return Slices(_allocate([size for part in sizes for size in _sizes(spec, part, machine)], machine), is_shared)


@dataclass(frozen=True)
class _Size:
    """Requested size of one node."""

    cpus: int
    gpus: int = 0
    memory_bytes: int = 0
    """0: its part of the machine's memory."""


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


def _allocate(sizes: Sequence[_Size], machine: Machine) -> tuple[LocalNode, ...]:
    """Assign cores and GPUs in order; cores wrap around when they run out, GPUs do not."""
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
    """Count GPUs by NVIDIA's library, else by its command; 0 without either."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return _count_gpus_by_command()
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0:
        return 0
    try:
        is_known = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        return int(count.value) if is_known else 0
    finally:
        nvml.nvmlShutdown()


def _count_gpus_by_command() -> int:
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        answer = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
