"""Partitions of a cluster by GPU type, each decided on as a cluster of its own.

A node's type is the value of its type label; a job's type is that of the nodes that match its selector. Nodes and jobs
without a type, or of a type without rules of its own, form the partition `REST`. This module decides nothing: it splits
a snapshot and merges the decisions. A job with workers outside its partition, because a label or the rules changed
while it ran, belongs to no partition and is left unchanged until it ends. Placements that only count devices have no
nodes, so they cannot be combined with partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.model.cluster import NOWHERE, Assignment, Bools, Ints, Nodes, Shape, Shapes
from sterna.model.plan import Action, Decision, Plan
from sterna.model.reason import Bar, Code, Obstacle, Reason
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import JobKey, Jobs, Snapshot, compute_totals

TYPE_LABELS = ("vodascheduler/accelerator", "nvidia.com/gpu.product")
"""Node labels that hold the GPU type; if several hold types that have rules, the first one counts."""

REST = ""
"""Name of the partition of all nodes and jobs whose type has no rules of its own."""

Selector = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GpuPartition:
    """Nodes of one GPU type and the jobs that can run on them."""

    type: str
    snapshot: Snapshot
    jobs: Ints
    """Rows of these jobs in the snapshot of the whole cluster."""
    nodes: Ints
    """Numbers of these nodes in the snapshot of the whole cluster."""


def gpu_types_in(nodes: Nodes) -> list[str]:
    """Return all GPU types in the labels of these nodes, with or without rules of their own."""
    return sorted({labels[key] for labels in nodes.labels for key in TYPE_LABELS if key in labels})


def gpu_type_in_selector(selector: Iterable[tuple[str, str]]) -> str:
    """Return the GPU type that a job's selector names; empty if it names none."""
    wanted = dict(selector)
    return next((wanted[key] for key in TYPE_LABELS if key in wanted), "")


# Splitting a snapshot.


def split_by_gpu_type(snapshot: Snapshot, types: Collection[str]) -> list[GpuPartition]:
    """Return one partition for each of these types that has nodes or jobs, and one for the rest.

    If all nodes are in one partition, that partition is the whole snapshot: no other job could run.
    """
    names = (REST, *sorted(types))
    number_of = {name: number for number, name in enumerate(names) if number}
    at_node = _partition_by_node(snapshot.nodes, number_of)
    if _are_equal(at_node) or not len(at_node):
        type_ = names[at_node.item(0)] if len(at_node) else REST
        return [GpuPartition(type_, snapshot, np.arange(len(snapshot.jobs)), np.arange(len(snapshot.nodes)))]
    shapes = [*snapshot.shapes.rows, *(pod.shape for pod in snapshot.serving)]
    part_of = _partition_by_selector({shape.selector for shape in shapes}, snapshot.nodes, at_node, number_of)
    at_shape = np.array([part_of[shape.selector] for shape in snapshot.shapes.rows], dtype=np.int64)
    at_job = at_shape[snapshot.jobs.shape]
    at_job[_rows_outside_partition(snapshot, at_job, at_node)] = -1
    parts = []
    for number, name in enumerate(names):
        jobs, nodes = (at_job == number).nonzero()[0], (at_node == number).nonzero()[0]
        if len(jobs) or len(nodes):
            serving = [pod for pod in snapshot.serving if part_of[pod.shape.selector] == number]
            parts.append(GpuPartition(name, _extract(snapshot, jobs, nodes, serving), jobs, nodes))
    return parts


def _are_equal(numbers: Ints) -> bool:
    """True if there is at least one number and all numbers are equal."""
    return len(numbers) > 0 and bool((numbers == numbers[0]).all())


def _partition_by_node(nodes: Nodes, number_of: Mapping[str, int]) -> Ints:
    """Return the partition number of each node."""
    parts = [0] * len(nodes)
    for key in reversed(TYPE_LABELS) if nodes.labels else ():
        parts = [number_of.get(labels.get(key, REST), part) for labels, part in zip(nodes.labels, parts, strict=True)]
    return np.array(parts, dtype=np.int64)


def _partition_by_selector(
    selectors: Collection[Selector], nodes: Nodes, at_node: Ints, number_of: Mapping[str, int]
) -> dict[Selector, int]:
    """Map each selector to the partition that holds all nodes it matches or, if there is no single one, to the
    partition of the type that it names. Any label or affinity can therefore select a type."""
    values: dict[str, dict[str | None, int]] = {}
    for key, value in (pair for selector in selectors for pair in selector):
        known = values.setdefault(key, {})
        known.setdefault(value, len(known))
    carried = {
        key: np.array([known.get(labels.get(key), -1) for labels in nodes.labels]) for key, known in values.items()
    }
    part_of: dict[Selector, int] = {}
    for selector in selectors:
        left = np.ones(len(nodes), dtype=np.bool_)
        for key, value in selector:
            left &= carried[key] == values[key][value]
        found = at_node[left]
        part_of[selector] = found.item(0) if _are_equal(found) else number_of.get(gpu_type_in_selector(selector), 0)
    return part_of


def _rows_outside_partition(snapshot: Snapshot, at_job: Ints, at_node: Ints) -> Ints:
    """Rows of jobs with at least one replica on a node of another partition."""
    rows = snapshot.jobs.workers.nonzero()[0]
    assignments = map(snapshot.assignments.__getitem__, snapshot.jobs.key[rows].tolist())
    runs = [assignment[0] + assignment[1] for assignment in assignments]
    counts = np.fromiter(map(len, runs), dtype=np.int64, count=len(runs))
    nodes = np.fromiter([run[0] for each in runs for run in each], dtype=np.int64, count=int(counts.sum()))
    owners = rows.repeat(counts)
    outside: Ints = owners[at_node[nodes] != at_job[owners]]
    return outside


def _extract(snapshot: Snapshot, jobs: Ints, nodes: Ints, serving: Sequence[ServingPod]) -> Snapshot:
    """Return a snapshot that consists of these jobs, nodes and serving pods only."""
    places = np.full(len(snapshot.nodes), -1, dtype=np.int64)
    places[nodes] = np.arange(len(nodes))
    codes = snapshot.jobs.shape[jobs]
    has_jobs = np.bincount(codes, minlength=len(snapshot.shapes)) > 0
    shapes = Shapes(tuple(snapshot.shapes[code] for code in has_jobs.nonzero()[0].tolist()) or (Shape(),))
    barred = None if snapshot.jobs.barred is None else snapshot.jobs.barred[jobs]
    source = _PartitionJobs(snapshot.jobs, jobs, (has_jobs.cumsum() - 1)[codes], places)
    table = Jobs(source, barred if barred is not None and barred.any() else None)
    selected = _select_nodes(snapshot.nodes, nodes, places)
    running: list[JobKey] = table.key[table.workers > 0].tolist()
    return replace(
        snapshot,
        jobs=table,
        nodes=selected,
        shapes=shapes,
        assignments=_PartitionAssignments(snapshot.assignments, running, places.tolist()),
        **compute_totals(table, selected, shapes)._asdict(),
        history=lambda: snapshot.finished_service,
        serving=serving,
        has_cpu_shares=snapshot.has_cpu_shares and bool((table.cpu_share != 1.0).any()),
    )


class _PartitionJobs:
    """Job columns of one partition, with the partition's own node and shape numbers."""

    def __init__(self, jobs: Jobs, rows: Ints, shape: Ints, places: Ints) -> None:
        self._jobs, self._rows, self._shape, self._places = jobs, rows, shape, places

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._shape if name == "shape" else getattr(self._jobs, name)[self._rows]
        if name == "moved_from":
            values = np.where(values >= 0, self._places[values], -1)
        values.flags.writeable = False
        return values

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(self._rows.item(row))


class _PartitionAssignments(Mapping[JobKey, Assignment]):
    """Assignments of one partition's jobs, renumbered on first access because few are read."""

    def __init__(self, assignments: Mapping[JobKey, Assignment], keys: Iterable[JobKey], places: Sequence[int]) -> None:
        self._assignments, self._places = assignments, places
        self._known: dict[JobKey, Assignment | None] = dict.fromkeys(keys)

    def __getitem__(self, key: JobKey) -> Assignment:
        assignment = self._known[key]
        if assignment is None:
            assignment = self._known[key] = _renumber(self._assignments[key], self._places)
        return assignment

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _renumber(assignment: Assignment, numbers: Sequence[int]) -> Assignment:
    workers = tuple([(numbers[node], count) for node, count in assignment.workers])
    return Assignment(
        workers,
        tuple([(numbers[node], count) for node, count in assignment.ps]) if assignment.ps else (),
        assignment.slots,
    )


@dataclass(frozen=True, kw_only=True)
class _PartitionNodes(Nodes):
    """Nodes of one partition. `accepting` reuses the cache of the whole cluster and keeps its own result."""

    whole: Nodes
    rows_in_whole: Ints
    fitting: dict[tuple[Selector, frozenset[str]], Bools] = field(default_factory=dict, compare=False)

    def accepting(self, shape: Shape) -> Bools:
        terms = shape.selector, shape.tolerations
        if terms not in self.fitting:
            self.fitting[terms] = self.whole.accepting(shape)[self.rows_in_whole]
        return self.is_open & self.fitting[terms]


def _select_nodes(whole: Nodes, rows: Ints, places: Ints) -> Nodes:
    here = rows.tolist()
    return _PartitionNodes(
        name=[whole.name[node] for node in here],
        capacity=whole.capacity[:, rows],
        free=whole.free[:, rows],
        is_open=whole.is_open[rows],
        rack=whole.rack[rows],
        labels=[whole.labels[node] for node in here] if whole.labels else (),
        taints=[whole.taints[node] for node in here] if whole.taints else (),
        shared={places.item(node): devices for node, devices in whole.shared.items() if places.item(node) >= 0},
        whole=whole,
        rows_in_whole=rows,
    )


# Merging decisions.


def merge_decisions(snapshot: Snapshot, decisions: Sequence[tuple[GpuPartition, Decision]]) -> Decision:
    """Merge the decisions of all partitions: actions sorted by kind, and the earliest `until`."""
    actions = [action for part, decision in decisions for action in _to_whole(snapshot, part, decision.plan.actions)]
    actions.sort(key=lambda action: action.kind)

    def explain() -> Sequence[Reason]:
        index_of = {action.row: index for index, action in enumerate(actions)}
        others = _OtherPartitions(snapshot.nodes, [part for part, _ in decisions])
        reasons = [others.extend(part, reason) for part, decision in decisions for reason in decision.reasons]
        return sorted(reasons, key=lambda reason: (index_of.get(reason.row, len(actions)), reason.row))

    return Decision(Plan(actions), min(decision.until for _, decision in decisions), explain)


def _to_whole(snapshot: Snapshot, part: GpuPartition, actions: Sequence[Action]) -> Iterator[Action]:
    """Translate actions from the partition's row and node numbers to those of the whole snapshot."""
    if not actions:
        return
    rows, nodes, assignments = part.jobs.tolist(), part.nodes.tolist(), snapshot.assignments
    for action in actions:
        after = _renumber(action.after, nodes) if action.after.workers else NOWHERE
        yield action._replace(row=rows[action.row], before=assignments.get(action.key, NOWHERE), after=after)


class _OtherPartitions:
    """Adds the obstacles on nodes of all other partitions to the reasons of one partition."""

    def __init__(self, nodes: Nodes, parts: Sequence[GpuPartition]) -> None:
        self._nodes, self._parts = nodes, parts
        self._known: dict[tuple[str, Selector], Counter[tuple[Bar, str]]] = {}

    def extend(self, part: GpuPartition, reason: Reason) -> Reason:
        extended = reason._replace(row=part.jobs.item(reason.row))
        is_nowhere = reason.code in (Code.NO_NODE, Code.NO_SERVERS) and not len(part.nodes)
        if not reason.obstacles and not is_nowhere:
            return extended
        shape = part.snapshot.shapes[part.snapshot.jobs.shape.item(reason.row)]
        counts = self._counts(part, shape.selector).copy()
        here = [each._replace(nodes=each.nodes + counts.pop((each.bar, each.what), 0)) for each in reason.obstacles]
        there = [Obstacle(bar, count, what) for (bar, what), count in counts.items()]
        order = sorted((*here, *there), key=lambda each: (-each.nodes, list(Bar).index(each.bar), each.what))
        return extended._replace(obstacles=tuple(order))

    def _counts(self, part: GpuPartition, selector: Selector) -> Counter[tuple[Bar, str]]:
        """Number of nodes of other partitions by the obstacle that rules them out."""
        known = self._known.get((part.type, selector))
        if known is None:
            known = self._known[part.type, selector] = Counter(
                self._obstacle_on(node, selector, other.type)
                for other in self._parts
                if other is not part
                for node in other.nodes.tolist()
            )
        return known

    def _obstacle_on(self, node: int, selector: Selector, type_: str) -> tuple[Bar, str]:
        labels = self._nodes.labels[node] if self._nodes.labels else {}
        lacking = [f"{key}={value}" for key, value in selector if labels.get(key) != value]
        return (Bar.LABEL, lacking[0]) if lacking else (Bar.TYPE, type_)
