"""Parts of GPUs, as KubeShare shares them: who holds how much of which, really and by decision (DRAGON-36 to 41).

A GPU that is shared is known by its node and a name; rules know it by a number. It is opened when somebody first takes
a part of it, and is whole again when nobody does. KubeShare itself holds a shared GPU by a pod of its own, which is in
the accounts already and must not count twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import gpu_id, gpu_number
from sterna.kinds.parsed_job import GpuFraction
from sterna.model.cluster import MILLI

Gpu = tuple[str, int]
"""Node and number."""


class _Held(NamedTuple):
    gpu: Gpu
    name: str
    part: int
    is_planned: bool


def gpu_fraction_milli(gpu_fraction: GpuFraction, gpu_memory_bytes: int) -> int:
    """Thousandths of a GPU that a share comes to: what it asks for of its time or of its memory, whichever is more, so
    that those who share one fit in both."""
    by_memory = -(-gpu_fraction.memory_bytes * MILLI // gpu_memory_bytes) if gpu_memory_bytes else 0
    return min(MILLI, max(gpu_fraction.request, by_memory, 1))


class GpuFractions:
    """All shared GPUs of a cluster."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._foreign: dict[Gpu, int] = defaultdict(int)
        """What is held by others than jobs whose homes are planned."""
        self._planned: dict[Gpu, int] = defaultdict(int)
        self._dummies: dict[str, Gpu] = {}
        """Pods by which KubeShare holds shared GPUs."""

    def hold(self, uid: str, node: str, name: str, part: int, is_planned: bool) -> bool:
        """Somebody has so many thousandths of a GPU; whether that is news."""
        held = _Held((node, gpu_number(name)), name, part, is_planned)
        if self._held.get(uid) == held:
            return False
        self.release(uid)
        self._held[uid] = held
        if not is_planned:
            self._foreign[held.gpu] += part
        return True

    def release(self, uid: str) -> bool:
        """Somebody has it no more; whether it had."""
        held = self._held.pop(uid, None)
        if held is None:
            return False
        if not held.is_planned:
            _take(self._foreign, held.gpu, held.part)
        return True

    def pass_on(self, uid: str, heir: str) -> None:
        """Somebody else has it from now on."""
        if (held := self._held.pop(uid, None)) is not None:
            self._held[heir] = held

    def plan(self, places: Iterable[tuple[str, str]], part: int, sign: int) -> None:
        """So much shall be held at each of these nodes and GPUs from now on; with -1, no more."""
        for node, name in places:
            gpu = (node, gpu_number(name))
            if sign > 0:
                self._planned[gpu] += part
            else:
                _take(self._planned, gpu, part)

    def stand_for(self, uid: str, node: str, name: str) -> None:
        """A pod of KubeShare's holds this GPU."""
        self._dummies[uid] = (node, gpu_number(name))

    def stand_down(self, uid: str) -> None:
        self._dummies.pop(uid, None)

    def left(self, node: str, name: str) -> int:
        """Thousandths of a GPU that nobody really holds."""
        gpu = (node, gpu_number(name))
        return MILLI - sum(held.part for held in self._held.values() if held.gpu == gpu)

    def is_open(self, node: str, name: str) -> bool:
        """Whether a GPU is really shared now, by somebody or as far as KubeShare is concerned."""
        return self.left(node, name) < MILLI or (node, gpu_number(name)) in self._dummies.values()

    def unmarked(self, node: str) -> int:
        """How many GPUs of a node are really shared and in no other account: KubeShare has not made its pod yet."""
        if not self._held:
            return 0
        return len({held.gpu for held in self._held.values() if held.gpu[0] == node} - set(self._dummies.values()))

    def name_of(self, node: str, number: int) -> str:
        """As KubeShare knows a GPU; others than we may have named it."""
        return self.names().get((node, number)) or gpu_id(number)

    def names(self) -> dict[Gpu, str]:
        """Of all GPUs that somebody really holds."""
        return {held.gpu: held.name for held in self._held.values()}

    def shared(self, row_of: Mapping[str, int]) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
        """By row and number, what is left of each shared GPU; and by row, how many of them are in no other account."""
        left: dict[int, dict[int, int]] = {}
        opened: dict[int, int] = defaultdict(int)
        known = set(self._dummies.values())
        for gpu in sorted(self._foreign.keys() | self._planned.keys()):
            row = row_of.get(gpu[0])
            if row is None:
                continue
            taken = self._foreign.get(gpu, 0) + self._planned.get(gpu, 0)
            left.setdefault(row, {})[gpu[1]] = max(0, MILLI - taken)
            opened[row] += gpu not in known
        return left, opened


def _take(parts: dict[Gpu, int], gpu: Gpu, part: int) -> None:
    parts[gpu] -= part
    if parts[gpu] <= 0:
        del parts[gpu]
