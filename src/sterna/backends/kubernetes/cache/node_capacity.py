"""Accounts: what every node has, what pods use of it, and what was decided to be used.

Kept current by deltas: a change costs what changed, not the number of nodes or pods. Two views of the same nodes follow
from it. To rules, what was decided counts as if it were so (`table`): whoever was told to leave has left, whoever was
told to come is there. To whoever makes pods, only what is really there counts (`has_room`): a pod uses its node until
its containers have ended. Other people's pods count in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from sterna.backends.kubernetes.api.objects import Node, Taint
from sterna.backends.kubernetes.cache.gpu_fractions import GpuFractions, gpu_fraction_milli
from sterna.backends.kubernetes.cache.node_facts import (
    MATCHES,
    Fingerprint,
    NodeFacts,
    Terms,
    affinity_label,
    facts_of,
    fingerprint,
    gpu_memory_label,
    resolved,
    satisfies,
    taint_word,
    terms_of,
)
from sterna.kinds.parsed_job import GpuFraction, NodeNeeds
from sterna.model.cluster import MILLI, Bools, Ints, Nodes, ResourceKind, Shape
from sterna.model.snapshot import NEVER

_PODS = 3
"""The row that counts pods, below devices, CPUs and memory; then come what pods may use at most of CPUs and memory."""
_ROWS = 6


Array = TypeVar("Array", Ints, Bools)


class ResourceUsage(NamedTuple):
    """What a pod uses of its node: thousandths of devices and CPUs, bytes of memory."""

    devices: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    most_cpus: int = 0
    """By its limits."""
    most_memory_bytes: int = 0


class Interest(IntEnum):
    """What news of a node means."""

    NONE = 0
    """A heartbeat."""
    CHANGED = 1
    CAME_OR_WENT = 2
    """Rows are others now."""


@dataclass(frozen=True)
class KnownNodes(Nodes):
    """Nodes that remember which of them take which shapes, for as long as labels and taints stay as they are."""

    fitting: dict[Terms, Bools] = field(default_factory=dict, compare=False)

    def accepting(self, shape: Shape) -> Bools:
        terms = Terms(shape.selector, shape.tolerations)
        fits = self.fitting.get(terms)
        if fits is None:
            pairs = zip(self.labels, self.taints, strict=True)
            fits = np.array([shape.accepts(labels, taints) for labels, taints in pairs], dtype=np.bool_)
            self.fitting[terms] = fits
        return self.is_open & fits


class _Used(NamedTuple):
    """One pod in the accounts."""

    slot: int
    usage: ResourceUsage
    is_planned: bool
    """It belongs to a job of ours that has a home, which is what rules see instead of it."""


class NodeCapacity:
    """Room on all nodes. Nodes have slots of their own that never change; rows follow the order of names."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self._free_slots: list[int] = []
        self._told: dict[str, Fingerprint] = {}
        self._facts: dict[str, NodeFacts] = {}
        self._gone: set[str] = set()
        self._capacity: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        self._used: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        """By all pods that are there."""
        self._ours: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        """By those of them that `_planned` stands for."""
        self._planned: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        self._pods: dict[str, _Used] = {}
        self._distrusted: dict[str, float] = {}
        self.parts = GpuFractions()
        self._interned: dict[ResourceUsage, ResourceUsage] = {}
        self._affinities: dict[bytes, list[dict[str, object]]] = {}
        self.names: tuple[str, ...] = ()
        self.row_of: Mapping[str, int] = {}
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._is_shuffled = self._is_relabelled = False
        self._labels: Sequence[Mapping[str, str]] = ()
        self._taints: Sequence[frozenset[str]] = ()
        self._rack: Ints = np.zeros(0, dtype=np.int64)
        self._open: Bools = np.zeros(0, dtype=np.bool_)
        self._fitting: dict[Terms, Bools] = {}
        self._terms: dict[NodeNeeds, Terms] = {}
        self.generation = 0
        """Goes up when taints or the memory of GPUs do not stay the same, and with them what `fitted` says."""
        self._taint_set: frozenset[Taint] = frozenset()
        self._gpu_memory: dict[str, int] = {}
        """By node, where KubeShare told."""
        self._gpu_needs: set[int] = set()
        """Memory that somebody needs of a GPU and not every node has."""

    # Nodes.

    def see(self, node: Node) -> Interest:
        """A node is there, as given."""
        name, told = node.metadata.name, fingerprint(node)
        if self._told.get(name) == told:
            return Interest.NONE
        is_new = name not in self._told
        self._told[name] = told
        self._gone.discard(name)
        facts = facts_of(name, told)
        if self._facts.get(name) == facts:
            return Interest.NONE
        self._facts[name] = facts
        slot = self._slot(name)
        self._capacity[:_ROWS, slot] = (facts.devices, facts.cpus, facts.memory_bytes, facts.pods, 0, 0)
        self._is_relabelled = True
        self._is_shuffled |= is_new
        return Interest.CAME_OR_WENT if is_new else Interest.CHANGED

    def lose(self, name: str) -> Interest:
        """A node is not there any more."""
        if self._told.pop(name, None) is None:
            return Interest.NONE
        del self._facts[name]
        self._gone.add(name)
        self._capacity[:, self._slot_of[name]] = 0
        self._is_shuffled = self._is_relabelled = True
        self._forget_slot(name)
        return Interest.CAME_OR_WENT

    def facts(self, name: str) -> NodeFacts | None:
        """None: there is no such node."""
        return self._facts.get(name)

    def is_gone(self, name: str) -> bool:
        """Whether a node was there and is not any more; one that is not known may be about to be told of."""
        return name in self._gone

    @property
    def unit(self) -> ResourceKind:
        """What policies count here."""
        return ResourceKind.DEVICES if self._capacity[ResourceKind.DEVICES].any() else ResourceKind.CPUS

    def gpu_memory_bytes(self, node: str) -> int:
        """Of its smallest GPU; 0: KubeShare did not tell."""
        facts = self._facts.get(node)
        return facts.gpu_memory_bytes if facts is not None else 0

    def _slot(self, name: str) -> int:
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._slot_of)
            self._slot_of[name] = slot
            if slot >= self._capacity.shape[1]:
                self._capacity, self._used, self._ours, self._planned = (
                    np.concatenate([each, np.zeros_like(each)], axis=1)
                    for each in (self._capacity, self._used, self._ours, self._planned)
                )
        return slot

    def _forget_slot(self, name: str) -> None:
        slot = self._slot_of[name]
        if not self._used[_PODS, slot] and not self._planned[_PODS, slot]:
            for column in (self._used, self._ours, self._planned):
                column[:, slot] = 0
            del self._slot_of[name]
            self._free_slots.append(slot)

    # Pods.

    def add_pod(self, pod: str, node: str, usage: ResourceUsage, is_planned: bool = False) -> bool:
        """A pod uses so much of a node, whatever it used before; whether that is news."""
        old = self._pods.get(pod)
        slot = self._slot(node)
        if old is not None:
            if old == (slot, usage, is_planned):
                return False
            self._book(old, -1)
        used = _Used(slot, self._interned.setdefault(usage, usage), is_planned)
        self._pods[pod] = used
        self._book(used, 1)
        return True

    def remove_pod(self, pod: str) -> bool:
        """A pod uses nothing any more; whether it did."""
        old = self._pods.pop(pod, None)
        if old is None:
            return False
        self._book(old, -1)
        return True

    def _book(self, used: _Used, sign: int) -> None:
        slot, (devices, cpus, memory_bytes, most_cpus, most_memory_bytes) = used.slot, used.usage
        for column in (self._used, self._ours) if used.is_planned else (self._used,):
            column[0, slot] += sign * devices
            column[1, slot] += sign * cpus
            column[2, slot] += sign * memory_bytes
            column[3, slot] += sign
        self._used[4, slot] += sign * most_cpus
        self._used[5, slot] += sign * most_memory_bytes

    def plan(self, replicas: Iterable[tuple[str, ResourceUsage]], sign: int = 1) -> None:
        """So much shall be used from now on; with -1, no more."""
        planned = self._planned
        for node, usage in replicas:
            slot = self._slot(node)
            planned[0, slot] += sign * usage.devices
            planned[1, slot] += sign * usage.cpus
            planned[2, slot] += sign * usage.memory_bytes
            planned[3, slot] += sign

    def has_room(self, node: str, devices: int, cpus: int, memory_bytes: int) -> bool:
        """Whether a node that takes pods has so much that none uses now; of what is not asked for it may lack any."""
        if not self.is_open(node):
            return False
        slot = self._slot_of[node]
        left = (self._capacity[:_ROWS, slot] - self._used[:, slot]).tolist()
        return bool(
            (not devices or left[0] - MILLI * self.parts.unmarked(node) >= devices)
            and (not cpus or left[1] >= cpus)
            and (not memory_bytes or left[2] >= memory_bytes)
            and left[3] > 0
        )

    def has_parts(self, node: str, parts: Mapping[str, int]) -> bool:
        """Whether shared GPUs of a node, by name, have so much that nobody really holds; one that nobody shares yet
        takes a whole one."""
        if any(self.parts.left(node, name) < part for name, part in parts.items()):
            return False
        opened = sum(not self.parts.is_open(node, name) for name in parts)
        return not opened or self.has_room(node, opened * MILLI, 0, 0)

    def is_open(self, node: str) -> bool:
        """Whether it is there and takes new pods."""
        facts = self._facts.get(node)
        return facts is not None and facts.is_open and node not in self._distrusted

    def takes(self, node: str, shape: Shape) -> bool:
        """Whether it takes new pods of this shape, were there room."""
        facts = self._facts.get(node)
        if facts is None or not self.is_open(node):
            return False
        return shape.accepts(self._labels_of(facts), frozenset(map(taint_word, facts.taints)))

    @property
    def is_distrusting(self) -> bool:
        return bool(self._distrusted)

    def distrust(self, node: str, until: float) -> None:
        """It refused a pod for which it should have had room: leave it alone for a while."""
        self._distrusted[node] = max(until, self._distrusted.get(node, until))
        self._is_relabelled = True

    def trust_again(self, now: float) -> float:
        """Whose time is over takes pods again; when the next one's is."""
        for node in [node for node, until in self._distrusted.items() if until <= now]:
            del self._distrusted[node]
            self._is_relabelled = True
        return min(self._distrusted.values(), default=NEVER)

    # What jobs ask of nodes.

    def terms(self, needs: NodeNeeds) -> Terms:
        """What these needs come to on the nodes that there are; may make a new label for all of them."""
        terms = self._terms.get(needs)
        if terms is None:
            if needs.required and needs.required not in self._affinities:
                self._affinities[needs.required] = terms_of(needs.required)
                self._is_relabelled = True
            terms = self._terms[needs] = resolved(needs, self._taint_set, self._gpu_memory.values())
            memory_bytes = needs.gpu_memory_bytes
            if memory_bytes not in self._gpu_needs and (gpu_memory_label(memory_bytes), MATCHES) in terms.selector:
                self._gpu_needs.add(memory_bytes)
                self._is_relabelled = True
        return terms

    def fitted(self, shape: Shape, needs: NodeNeeds, gpu_fraction: GpuFraction | None = None) -> Shape:
        """What a worker needs, in terms of the nodes that there are. A share of a GPU is counted by the smallest that
        has the memory for it, wherever it goes: on larger ones it is given more than it asks for."""
        if gpu_fraction is not None:
            sizes = [size for size in self._gpu_memory.values() if size >= gpu_fraction.memory_bytes]
            shape = replace(shape, devices=gpu_fraction_milli(gpu_fraction, min(sizes, default=0)), is_shared=True)
            needs = replace(needs, gpu_memory_bytes=gpu_fraction.memory_bytes)
        terms = self.terms(needs)
        return replace(shape, selector=terms.selector, tolerations=terms.tolerations)

    def settle(self) -> bool:
        """Make rows, labels and taints current after news of nodes; whether rows, or what `fitted` says, are others
        now."""
        if not self._is_shuffled and not self._is_relabelled:
            return False
        before = self.names, self.generation
        if self._is_shuffled:
            self.names = tuple(sorted(self._facts))
            self.row_of = {name: row for row, name in enumerate(self.names)}
        self._order = np.array([self._slot_of[name] for name in self.names], dtype=np.int64)
        facts = [self._facts[name] for name in self.names]
        self._settle_terms(facts)
        self._labels = [self._labels_of(each) for each in facts]
        racks = {rack: code for code, rack in enumerate(sorted({each.rack for each in facts}))}
        self._rack = _frozen(np.array([racks[each.rack] for each in facts], dtype=np.int64))
        self._open = np.array([each.is_open and each.name not in self._distrusted for each in facts], dtype=np.bool_)
        self._fitting = {}
        self._is_shuffled = self._is_relabelled = False
        return (self.names, self.generation) != before

    def _settle_terms(self, facts: Sequence[NodeFacts]) -> None:
        taints = frozenset(taint for each in facts for taint in each.taints)
        memory = {each.name: each.gpu_memory_bytes for each in facts if each.gpu_memory_bytes}
        if (taints, memory) != (self._taint_set, self._gpu_memory):
            self._taint_set, self._gpu_memory = taints, memory
            self._terms.clear()
            self.generation += 1
        none: frozenset[str] = frozenset()
        self._taints = [frozenset(map(taint_word, each.taints)) if each.taints else none for each in facts]

    def _labels_of(self, facts: NodeFacts) -> Mapping[str, str]:
        alternatives = self._affinities.items()
        matched = [affinity_label(each) for each, terms in alternatives if satisfies(terms, facts.name, facts.labels)]
        size = facts.gpu_memory_bytes
        matched += [gpu_memory_label(need) for need in self._gpu_needs if not size or need <= size]
        return {**facts.labels, **dict.fromkeys(matched, MATCHES)} if matched else facts.labels

    # What rules see.

    def table(self) -> KnownNodes:
        """All nodes as if everything that was decided were so. Call `settle` first."""
        order = self._order
        capacity = self._capacity[:, order]
        free = capacity - (self._used[:, order] - self._ours[:, order] + self._planned[:, order])
        is_open = self._open & (free[_PODS] > 0)
        shared, opened = self.parts.shared(self.row_of)
        for row, count in opened.items():
            free[ResourceKind.DEVICES, row] -= count * MILLI
        return KnownNodes(
            self.names,
            _frozen(capacity[:_PODS]),
            _frozen(np.maximum(free[:_PODS], 0)),
            _frozen(is_open),
            self._rack,
            self._labels,
            self._taints,
            MappingProxyType(shared),
            fitting=self._fitting,
        )

    def overfull(self) -> set[str]:
        """Nodes of which more was promised than there is. Call `settle` first."""
        order = self._order
        free = self._capacity[:, order] - (self._used[:, order] - self._ours[:, order] + self._planned[:, order])
        return {self.names[row] for row in np.flatnonzero((free[:_PODS] < 0).any(axis=0)).tolist()}

    def usage(self) -> Ints:
        """What pods really use now, by row: devices, CPUs, memory, pods, and CPUs and memory by their limits."""
        return self._used[:, self._order]

    @property
    def pods(self) -> int:
        """Pods that use something."""
        return len(self._pods)


def _frozen(column: Array) -> Array:
    column.flags.writeable = False
    return column
