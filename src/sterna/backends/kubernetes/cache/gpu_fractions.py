"""`GpuFractions`: fractions of GPUs held through KubeShare, actual and planned.

A shared GPU is identified by its node and a GPU id; rules know it by a number. It is opened when the first fraction is
taken and whole again when none is left. KubeShare holds a shared GPU with a pod of its own, which is in `NodeCapacity`
already and must not count twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import gpu_id, gpu_number
from sterna.kinds.parsed_job import GpuFraction
from sterna.model.cluster import MILLI

Gpu = tuple[str, int]
"""Node name and GPU number."""


class _HeldFraction(NamedTuple):
    gpu: Gpu
    name: str
    part: int
    is_planned: bool


def gpu_fraction_milli(gpu_fraction: GpuFraction, gpu_memory_bytes: int) -> int:
    """Return the fraction in thousandths: the larger of its compute request and its memory share."""
    by_memory = -(-gpu_fraction.memory_bytes * MILLI // gpu_memory_bytes) if gpu_memory_bytes else 0
    return min(MILLI, max(gpu_fraction.request, by_memory, 1))


class GpuFractions:
    """All shared GPUs of a cluster."""

    def __init__(self) -> None:
        self._held: dict[str, _HeldFraction] = {}
        self._foreign: dict[Gpu, int] = defaultdict(int)
        """Fractions held by pods whose planned usage is not in `_planned`."""
        self._planned: dict[Gpu, int] = defaultdict(int)
        self._vgpu_pods: dict[str, Gpu] = {}
        """GPUs that KubeShare holds, by the uid of its pod."""

    def hold(self, uid: str, node: str, name: str, part: int, is_planned: bool) -> bool:
        """Set the fraction of a pod in thousandths; return True if it changed."""
        held = _HeldFraction((node, gpu_number(name)), name, part, is_planned)
        if self._held.get(uid) == held:
            return False
        self.release(uid)
        self._held[uid] = held
        if not is_planned:
            self._foreign[held.gpu] += part
        return True

    def release(self, uid: str) -> bool:
        """Remove the fraction of a pod; return True if it had one."""
        held = self._held.pop(uid, None)
        if held is None:
            return False
        if not held.is_planned:
            _take(self._foreign, held.gpu, held.part)
        return True

    def transfer(self, uid: str, new_uid: str) -> None:
        """Transfer a fraction to another pod."""
        if (held := self._held.pop(uid, None)) is not None:
            self._held[new_uid] = held

    def plan(self, gpus: Iterable[tuple[str, str]], part: int, sign: int) -> None:
        """Add (`sign=1`) or remove (`sign=-1`) a planned fraction on each of these GPUs."""
        for node, name in gpus:
            gpu = (node, gpu_number(name))
            if sign > 0:
                self._planned[gpu] += part
            else:
                _take(self._planned, gpu, part)

    def add_vgpu_pod(self, uid: str, node: str, name: str) -> None:
        """Note that a pod of KubeShare holds this GPU."""
        self._vgpu_pods[uid] = (node, gpu_number(name))

    def remove_vgpu_pod(self, uid: str) -> None:
        self._vgpu_pods.pop(uid, None)

    def free_part(self, node: str, name: str) -> int:
        """Return the thousandths of a GPU that no pod holds."""
        gpu = (node, gpu_number(name))
        return MILLI - sum(held.part for held in self._held.values() if held.gpu == gpu)

    def is_open(self, node: str, name: str) -> bool:
        """Return True if a GPU is shared now, by a pod or according to KubeShare."""
        return self.free_part(node, name) < MILLI or (node, gpu_number(name)) in self._vgpu_pods.values()

    def count_pending_gpus(self, node: str) -> int:
        """Return the number of shared GPUs of a node for which KubeShare has not created its pod yet."""
        if not self._held:
            return 0
        return len({held.gpu for held in self._held.values() if held.gpu[0] == node} - set(self._vgpu_pods.values()))

    def name_of(self, node: str, number: int) -> str:
        """Return KubeShare's id of a GPU, which another client may have chosen."""
        return self.names().get((node, number)) or gpu_id(number)

    def names(self) -> dict[Gpu, str]:
        """Return the ids of all GPUs that a pod holds."""
        return {held.gpu: held.name for held in self._held.values()}

    def free_parts_by_row(self, row_of: Mapping[str, int]) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
        """Return the free fraction of each shared GPU by row and number, and the number of pending ones by row."""
        parts: dict[int, dict[int, int]] = {}
        opened: dict[int, int] = defaultdict(int)
        known = set(self._vgpu_pods.values())
        for gpu in sorted(self._foreign.keys() | self._planned.keys()):
            row = row_of.get(gpu[0])
            if row is None:
                continue
            taken = self._foreign.get(gpu, 0) + self._planned.get(gpu, 0)
            parts.setdefault(row, {})[gpu[1]] = max(0, MILLI - taken)
            opened[row] += gpu not in known
        return parts, opened


def _take(parts: dict[Gpu, int], gpu: Gpu, part: int) -> None:
    parts[gpu] -= part
    if parts[gpu] <= 0:
        del parts[gpu]
