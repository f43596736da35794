"""`NodeCapacity`: capacity of every node, usage of its pods, and planned usage of desired assignments.

Updated by deltas in time proportional to the change. Two views: `table`, for rules, counts desired assignments as if
they were reached; `has_room`, for controllers, counts only what exists: a pod uses its node until its containers have
terminated. Pods of other owners count in both.
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
    NodeTerms,
    affinity_label,
    facts_of,
    fingerprint,
    gpu_memory_label,
    resolve_needs,
    satisfies,
    taint_word,
    terms_of,
)
from sterna.kinds.parsed_job import GpuFraction, NodeNeeds
from sterna.model.cluster import MILLI, Bools, Ints, Nodes, ResourceKind, Shape
from sterna.model.snapshot import NEVER

_PODS = 3
"""Row of the pod count, after devices, CPUs and memory; CPU and memory limits follow."""
_ROWS = 6


IntsOrBools = TypeVar("IntsOrBools", Ints, Bools)


class ResourceUsage(NamedTuple):
    """Resources of one pod: thousandths of devices and CPUs, bytes of memory."""

    devices: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    limit_cpus: int = 0
    limit_memory_bytes: int = 0


class NodeChange(IntEnum):
    """Effect of a node event."""

    NONE = 0
    """Heartbeat only."""
    CHANGED = 1
    ADDED_OR_REMOVED = 2
    """Row numbers changed."""


@dataclass(frozen=True)
class KnownNodes(Nodes):
    """Nodes with a cache of which of them accept which shapes, valid until labels or taints change."""

    fitting: dict[NodeTerms, Bools] = field(default_factory=dict, compare=False)

    def accepting(self, shape: Shape) -> Bools:
        terms = NodeTerms(shape.selector, shape.tolerations)
        fits = self.fitting.get(terms)
        if fits is None:
            pairs = zip(self.labels, self.taints, strict=True)
            fits = np.array([shape.accepts(labels, taints) for labels, taints in pairs], dtype=np.bool_)
            self.fitting[terms] = fits
        return self.is_open & fits


class _Used(NamedTuple):
    """Usage of one pod."""

    slot: int
    usage: ResourceUsage
    is_planned: bool
    """True if the pod belongs to an assigned job, for which rules count the planned usage instead."""


class NodeCapacity:
    """Capacity and usage of all nodes. A node keeps its slot for life; rows are sorted by name."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self._free_slots: list[int] = []
        self._fingerprints: dict[str, Fingerprint] = {}
        self._facts: dict[str, NodeFacts] = {}
        self._gone: set[str] = set()
        self._capacity: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        self._used: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        """Usage of all existing pods."""
        self._ours: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        """Usage of existing pods whose planned usage is in `_planned`."""
        self._planned: Ints = np.zeros((_ROWS, 8), dtype=np.int64)
        self._pods: dict[str, _Used] = {}
        self._distrusted: dict[str, float] = {}
        self.gpu_fractions = GpuFractions()
        self._interned: dict[ResourceUsage, ResourceUsage] = {}
        self._affinities: dict[bytes, list[dict[str, object]]] = {}
        self.names: tuple[str, ...] = ()
        self.row_of: Mapping[str, int] = {}
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._are_rows_stale = self._are_labels_stale = False
        self._labels: Sequence[Mapping[str, str]] = ()
        self._taints: Sequence[frozenset[str]] = ()
        self._rack: Ints = np.zeros(0, dtype=np.int64)
        self._open: Bools = np.zeros(0, dtype=np.bool_)
        self._fitting: dict[NodeTerms, Bools] = {}
        self._terms: dict[NodeNeeds, NodeTerms] = {}
        self.generation = 0
        """Incremented when taints or GPU sizes change, which changes the results of `fit`."""
        self._taint_set: frozenset[Taint] = frozenset()
        self._gpu_memory: dict[str, int] = {}
        """GPU memory by node, where KubeShare reports it."""
        self._gpu_needs: set[int] = set()
        """GPU memory sizes that some job needs and some node lacks."""

    # Nodes.

    def see(self, node: Node) -> NodeChange:
        name, current = node.metadata.name, fingerprint(node)
        if self._fingerprints.get(name) == current:
            return NodeChange.NONE
        is_new = name not in self._fingerprints
        self._fingerprints[name] = current
        self._gone.discard(name)
        facts = facts_of(name, current)
        if self._facts.get(name) == facts:
            return NodeChange.NONE
        self._facts[name] = facts
        slot = self._slot(name)
        self._capacity[:_ROWS, slot] = (facts.devices, facts.cpus, facts.memory_bytes, facts.pods, 0, 0)
        self._are_labels_stale = True
        self._are_rows_stale |= is_new
        return NodeChange.ADDED_OR_REMOVED if is_new else NodeChange.CHANGED

    def lose(self, name: str) -> NodeChange:
        if self._fingerprints.pop(name, None) is None:
            return NodeChange.NONE
        del self._facts[name]
        self._gone.add(name)
        self._capacity[:, self._slot_of[name]] = 0
        self._are_rows_stale = self._are_labels_stale = True
        self._forget_slot(name)
        return NodeChange.ADDED_OR_REMOVED

    def facts(self, name: str) -> NodeFacts | None:
        """Return the facts of a node, None if it does not exist."""
        return self._facts.get(name)

    def is_gone(self, name: str) -> bool:
        """Return True if the node was deleted; an unknown node may not have been listed yet."""
        return name in self._gone

    @property
    def unit(self) -> ResourceKind:
        """Resource that policies count: devices, or CPUs in a cluster without devices."""
        return ResourceKind.DEVICES if self._capacity[ResourceKind.DEVICES].any() else ResourceKind.CPUS

    def gpu_memory_bytes(self, node: str) -> int:
        """Return the memory of the node's smallest GPU; 0 if unknown."""
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
        """Set the usage of a pod; return True if it changed."""
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
        """Remove the usage of a pod; return True if it had any."""
        old = self._pods.pop(pod, None)
        if old is None:
            return False
        self._book(old, -1)
        return True

    def _book(self, used: _Used, sign: int) -> None:
        slot, (devices, cpus, memory_bytes, limit_cpus, limit_memory_bytes) = used.slot, used.usage
        for column in (self._used, self._ours) if used.is_planned else (self._used,):
            column[0, slot] += sign * devices
            column[1, slot] += sign * cpus
            column[2, slot] += sign * memory_bytes
            column[3, slot] += sign
        self._used[4, slot] += sign * limit_cpus
        self._used[5, slot] += sign * limit_memory_bytes

    def plan(self, replicas: Iterable[tuple[str, ResourceUsage]], sign: int = 1) -> None:
        """Add (`sign=1`) or remove (`sign=-1`) planned usage."""
        planned = self._planned
        for node, usage in replicas:
            slot = self._slot(node)
            planned[0, slot] += sign * usage.devices
            planned[1, slot] += sign * usage.cpus
            planned[2, slot] += sign * usage.memory_bytes
            planned[3, slot] += sign

    def has_room(self, node: str, devices: int, cpus: int, memory_bytes: int) -> bool:
        """Return True if an open node has this much unused capacity; resources of need 0 are not checked."""
        if not self.is_open(node):
            return False
        slot = self._slot_of[node]
        left = (self._capacity[:_ROWS, slot] - self._used[:, slot]).tolist()
        return bool(
            (not devices or left[0] - MILLI * self.gpu_fractions.count_pending_gpus(node) >= devices)
            and (not cpus or left[1] >= cpus)
            and (not memory_bytes or left[2] >= memory_bytes)
            and left[3] > 0
        )

    def has_fractions(self, node: str, fractions: Mapping[str, int]) -> bool:
        """Return True if the node's GPUs have these free fractions by GPU id; opening a new shared GPU takes a whole
        one."""
        if any(self.gpu_fractions.free_part(node, name) < fraction for name, fraction in fractions.items()):
            return False
        opened = sum(not self.gpu_fractions.is_open(node, name) for name in fractions)
        return not opened or self.has_room(node, opened * MILLI, 0, 0)

    def is_open(self, node: str) -> bool:
        """Return True if the node exists and accepts new pods."""
        facts = self._facts.get(node)
        return facts is not None and facts.is_open and node not in self._distrusted

    def takes(self, node: str, shape: Shape) -> bool:
        """Return True if the node accepts new pods of this shape, apart from free capacity."""
        facts = self._facts.get(node)
        if facts is None or not self.is_open(node):
            return False
        return shape.accepts(self._labels_of(facts), frozenset(map(taint_word, facts.taints)))

    @property
    def is_distrusting(self) -> bool:
        return bool(self._distrusted)

    def distrust(self, node: str, until: float) -> None:
        """Exclude a node that rejected a pod that should have fit, until the given time."""
        self._distrusted[node] = max(until, self._distrusted.get(node, until))
        self._are_labels_stale = True

    def trust_again(self, now: float) -> float:
        """Readmit nodes whose exclusion is over; return when the next one ends."""
        for node in [node for node, until in self._distrusted.items() if until <= now]:
            del self._distrusted[node]
            self._are_labels_stale = True
        return min(self._distrusted.values(), default=NEVER)

    # Shapes.

    def terms(self, needs: NodeNeeds) -> NodeTerms:
        """Resolve needs on the existing nodes; may add a virtual label to all of them."""
        terms = self._terms.get(needs)
        if terms is None:
            if needs.required and needs.required not in self._affinities:
                self._affinities[needs.required] = terms_of(needs.required)
                self._are_labels_stale = True
            terms = self._terms[needs] = resolve_needs(needs, self._taint_set, self._gpu_memory.values())
            memory_bytes = needs.gpu_memory_bytes
            if memory_bytes not in self._gpu_needs and (gpu_memory_label(memory_bytes), MATCHES) in terms.selector:
                self._gpu_needs.add(memory_bytes)
                self._are_labels_stale = True
        return terms

    def fit(self, shape: Shape, needs: NodeNeeds, gpu_fraction: GpuFraction | None = None) -> Shape:
        """Return a shape with its needs resolve_needs on the existing nodes.

        A GPU fraction is sized by the smallest GPU with enough memory: on a larger one it gets more than it requests.
        """
        if gpu_fraction is not None:
            sizes = [size for size in self._gpu_memory.values() if size >= gpu_fraction.memory_bytes]
            shape = replace(shape, devices=gpu_fraction_milli(gpu_fraction, min(sizes, default=0)), is_shared=True)
            needs = replace(needs, gpu_memory_bytes=gpu_fraction.memory_bytes)
        terms = self.terms(needs)
        return replace(shape, selector=terms.selector, tolerations=terms.tolerations)

    def refresh(self) -> bool:
        """Rebuild rows, labels and taints after node changes; return True if rows or results of `fit` changed."""
        if not self._are_rows_stale and not self._are_labels_stale:
            return False
        before = self.names, self.generation
        if self._are_rows_stale:
            self.names = tuple(sorted(self._facts))
            self.row_of = {name: row for row, name in enumerate(self.names)}
        self._order = np.array([self._slot_of[name] for name in self.names], dtype=np.int64)
        facts = [self._facts[name] for name in self.names]
        self._refresh_terms(facts)
        self._labels = [self._labels_of(each) for each in facts]
        racks = {rack: code for code, rack in enumerate(sorted({each.rack for each in facts}))}
        self._rack = _frozen(np.array([racks[each.rack] for each in facts], dtype=np.int64))
        self._open = np.array([each.is_open and each.name not in self._distrusted for each in facts], dtype=np.bool_)
        self._fitting = {}
        self._are_rows_stale = self._are_labels_stale = False
        return (self.names, self.generation) != before

    def _refresh_terms(self, facts: Sequence[NodeFacts]) -> None:
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

    # Views.

    def table(self) -> KnownNodes:
        """Return all nodes with desired assignments counted as reached. Call `refresh` first."""
        order = self._order
        capacity = self._capacity[:, order]
        free = capacity - (self._used[:, order] - self._ours[:, order] + self._planned[:, order])
        is_open = self._open & (free[_PODS] > 0)
        shared, opened = self.gpu_fractions.free_parts_by_row(self.row_of)
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
        """Return the names of oversubscribed nodes. Call `refresh` first."""
        order = self._order
        free = self._capacity[:, order] - (self._used[:, order] - self._ours[:, order] + self._planned[:, order])
        return {self.names[row] for row in np.flatnonzero((free[:_PODS] < 0).any(axis=0)).tolist()}

    def usage(self) -> Ints:
        """Return the usage of existing pods by row: devices, CPUs, memory, pods, CPU and memory limits."""
        return self._used[:, self._order]

    @property
    def pods(self) -> int:
        """Number of pods with usage."""
        return len(self._pods)


def _frozen(column: IntsOrBools) -> IntsOrBools:
    column.flags.writeable = False
    return column
