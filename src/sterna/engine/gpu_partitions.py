"""A cluster with several types of GPU, cut into parts that are decided on as if each were a cluster by itself. VODA-79.

A node is of the type that its label names; a job is of the type of the nodes that its selector leaves it. Types without
rules of their own, and whoever has no type, are together in the part `REST`. Nothing is decided here: parts are cut out
of a snapshot, and what was decided on each is put together again. A job that sits outside its part, because a label or
the rules changed under it, is in none of them: it goes on as it is until it ends. Placements that only count devices
have no nodes to tell types by, so they cannot be used with parts.
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
"""Labels that name a node's type of GPU; where two of them name types that have rules, the first one counts."""

REST = ""
"""The part of all who are of no type that has rules of its own."""

Selector = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Part:
    """Nodes of one type and the jobs that belong there."""

    type: str
    snapshot: Snapshot
    jobs: Ints
    """Which rows of the whole snapshot these are."""
    nodes: Ints


def types_in(nodes: Nodes) -> list[str]:
    """All types of GPU that labels of these nodes name, whether they have rules or not."""
    return sorted({labels[key] for labels in nodes.labels for key in TYPE_LABELS if key in labels})


def type_asked(selector: Iterable[tuple[str, str]]) -> str:
    """The type of GPU that a job asks for by name; empty if it names none."""
    wanted = dict(selector)
    return next((wanted[key] for key in TYPE_LABELS if key in wanted), "")


# The whole cut into parts.


def split_by_gpu_type(snapshot: Snapshot, types: Collection[str]) -> list[Part]:
    """One part for each of these types that has nodes or jobs, and one for the rest. Where all nodes are in one part,
    it is the whole: nobody else could run anywhere."""
    names = (REST, *sorted(types))
    number_of = {name: number for number, name in enumerate(names) if number}
    at_node = _parts_of_nodes(snapshot.nodes, number_of)
    if _is_one(at_node) or not len(at_node):
        type_ = names[at_node.item(0)] if len(at_node) else REST
        return [Part(type_, snapshot, np.arange(len(snapshot.jobs)), np.arange(len(snapshot.nodes)))]
    shapes = [*snapshot.shapes.rows, *(pod.shape for pod in snapshot.serving)]
    part_of = _parts_of_selectors({shape.selector for shape in shapes}, snapshot.nodes, at_node, number_of)
    at_shape = np.array([part_of[shape.selector] for shape in snapshot.shapes.rows], dtype=np.int64)
    at_job = at_shape[snapshot.jobs.shape]
    at_job[_strays(snapshot, at_job, at_node)] = -1
    parts = []
    for number, name in enumerate(names):
        jobs, nodes = (at_job == number).nonzero()[0], (at_node == number).nonzero()[0]
        if len(jobs) or len(nodes):
            serving = [pod for pod in snapshot.serving if part_of[pod.shape.selector] == number]
            parts.append(Part(name, _cut(snapshot, jobs, nodes, serving), jobs, nodes))
    return parts


def _is_one(numbers: Ints) -> bool:
    """All of them are the same, and there are some."""
    return len(numbers) > 0 and bool((numbers == numbers[0]).all())


def _parts_of_nodes(nodes: Nodes, number_of: Mapping[str, int]) -> Ints:
    """The part of each node, by number."""
    parts = [0] * len(nodes)
    for key in reversed(TYPE_LABELS) if nodes.labels else ():
        parts = [number_of.get(labels.get(key, REST), part) for labels, part in zip(nodes.labels, parts, strict=True)]
    return np.array(parts, dtype=np.int64)


def _parts_of_selectors(
    selectors: Collection[Selector], nodes: Nodes, at_node: Ints, number_of: Mapping[str, int]
) -> dict[Selector, int]:
    """The part in which all nodes are that a selector leaves; where that is not one part, the one that the selector
    names. So labels of any kind, and affinities, may lead to a type."""
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
        part_of[selector] = found.item(0) if _is_one(found) else number_of.get(type_asked(selector), 0)
    return part_of


def _strays(snapshot: Snapshot, at_job: Ints, at_node: Ints) -> Ints:
    """Rows of jobs that sit, all or some of their replicas, on nodes of another part than their own."""
    rows = snapshot.jobs.workers.nonzero()[0]
    assignments = map(snapshot.assignments.__getitem__, snapshot.jobs.key[rows].tolist())
    runs = [assignment[0] + assignment[1] for assignment in assignments]
    counts = np.fromiter(map(len, runs), dtype=np.int64, count=len(runs))
    nodes = np.fromiter([run[0] for each in runs for run in each], dtype=np.int64, count=int(counts.sum()))
    owners = rows.repeat(counts)
    strays: Ints = owners[at_node[nodes] != at_job[owners]]
    return strays


def _cut(snapshot: Snapshot, jobs: Ints, nodes: Ints, serving: Sequence[ServingPod]) -> Snapshot:
    """These jobs on these nodes, and nothing else in the world."""
    places = np.full(len(snapshot.nodes), -1, dtype=np.int64)
    places[nodes] = np.arange(len(nodes))
    codes = snapshot.jobs.shape[jobs]
    has_jobs = np.bincount(codes, minlength=len(snapshot.shapes)) > 0
    shapes = Shapes(tuple(snapshot.shapes[code] for code in has_jobs.nonzero()[0].tolist()) or (Shape(),))
    barred = None if snapshot.jobs.barred is None else snapshot.jobs.barred[jobs]
    source = _RowsOf(snapshot.jobs, jobs, (has_jobs.cumsum() - 1)[codes], places)
    table = Jobs(source, barred if barred is not None and barred.any() else None)
    cut_nodes = _nodes_of(snapshot.nodes, nodes, places)
    running: list[JobKey] = table.key[table.workers > 0].tolist()
    return replace(
        snapshot,
        jobs=table,
        nodes=cut_nodes,
        shapes=shapes,
        assignments=_AssignmentsOf(snapshot.assignments, running, places.tolist()),
        **compute_totals(table, cut_nodes, shapes)._asdict(),
        history=lambda: snapshot.finished_service,
        serving=serving,
        has_cpu_shares=snapshot.has_cpu_shares and bool((table.cpu_share != 1.0).any()),
    )


class _RowsOf:
    """Some rows of a table of jobs, with nodes and shapes under the numbers that they have in a part."""

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


class _AssignmentsOf(Mapping[JobKey, Assignment]):
    """Homes of the jobs of a part, each put into the part's own numbers when somebody asks for it: few are."""

    def __init__(self, assignments: Mapping[JobKey, Assignment], keys: Iterable[JobKey], places: Sequence[int]) -> None:
        self._assignments, self._places = assignments, places
        self._known: dict[JobKey, Assignment | None] = dict.fromkeys(keys)

    def __getitem__(self, key: JobKey) -> Assignment:
        assignment = self._known[key]
        if assignment is None:
            assignment = self._known[key] = _renumbered(self._assignments[key], self._places)
        return assignment

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _renumbered(assignment: Assignment, numbers: Sequence[int]) -> Assignment:
    workers = tuple([(numbers[node], count) for node, count in assignment.workers])
    return Assignment(
        workers,
        tuple([(numbers[node], count) for node, count in assignment.ps]) if assignment.ps else (),
        assignment.slots,
    )


@dataclass(frozen=True, kw_only=True)
class _NodesOf(Nodes):
    """Some of the nodes. Which of them accept a shape is asked of the whole, which may know already, and only once."""

    whole: Nodes
    rows_in_whole: Ints
    fitting: dict[tuple[Selector, frozenset[str]], Bools] = field(default_factory=dict, compare=False)

    def accepting(self, shape: Shape) -> Bools:
        terms = shape.selector, shape.tolerations
        if terms not in self.fitting:
            self.fitting[terms] = self.whole.accepting(shape)[self.rows_in_whole]
        return self.is_open & self.fitting[terms]


def _nodes_of(whole: Nodes, rows: Ints, places: Ints) -> Nodes:
    here = rows.tolist()
    return _NodesOf(
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


# Decisions put together.


def merge_decisions(snapshot: Snapshot, decided: Sequence[tuple[Part, Decision]]) -> Decision:
    """One decision about the whole: all that is to be done, in the order of kinds, and until the first part wants to
    be asked again."""
    actions = [action for part, decision in decided for action in _in_whole(snapshot, part, decision.plan.actions)]
    actions.sort(key=lambda action: action.kind)

    def explain() -> Sequence[Reason]:
        place_of = {action.row: place for place, action in enumerate(actions)}
        elsewhere = _Elsewhere(snapshot.nodes, [part for part, _ in decided])
        reasons = [elsewhere.told(part, reason) for part, decision in decided for reason in decision.reasons]
        return sorted(reasons, key=lambda reason: (place_of.get(reason.row, len(actions)), reason.row))

    return Decision(Plan(actions), min(decision.until for _, decision in decided), explain)


def _in_whole(snapshot: Snapshot, part: Part, actions: Sequence[Action]) -> Iterator[Action]:
    if not actions:
        return
    rows, nodes, assignments = part.jobs.tolist(), part.nodes.tolist(), snapshot.assignments
    for kind, key, row, _, after, mark, cpu_share, evictor in actions:
        assignment = _renumbered(after, nodes) if after.workers else NOWHERE
        yield Action(kind, key, rows[row], assignments.get(key, NOWHERE), assignment, mark, cpu_share, evictor)


class _Elsewhere:
    """Adds to the reasons of a part what keeps its jobs off the nodes of the others."""

    def __init__(self, nodes: Nodes, parts: Sequence[Part]) -> None:
        self._nodes, self._parts = nodes, parts
        self._known: dict[tuple[str, Selector], Counter[tuple[Bar, str]]] = {}

    def told(self, part: Part, reason: Reason) -> Reason:
        told = reason._replace(row=part.jobs.item(reason.row))
        is_nowhere = reason.code in (Code.NO_NODE, Code.NO_SERVERS) and not len(part.nodes)
        if not reason.obstacles and not is_nowhere:
            return told
        shape = part.snapshot.shapes[part.snapshot.jobs.shape.item(reason.row)]
        counts = self._counts(part, shape.selector).copy()
        here = [each._replace(nodes=each.nodes + counts.pop((each.bar, each.what), 0)) for each in reason.obstacles]
        there = [Obstacle(bar, count, what) for (bar, what), count in counts.items()]
        order = sorted((*here, *there), key=lambda each: (-each.nodes, list(Bar).index(each.bar), each.what))
        return told._replace(obstacles=tuple(order))

    def _counts(self, part: Part, selector: Selector) -> Counter[tuple[Bar, str]]:
        """How many nodes of other parts are ruled out by what."""
        known = self._known.get((part.type, selector))
        if known is None:
            known = self._known[part.type, selector] = Counter(
                self._bar(node, selector, other.type)
                for other in self._parts
                if other is not part
                for node in other.nodes.tolist()
            )
        return known

    def _bar(self, node: int, selector: Selector, type_: str) -> tuple[Bar, str]:
        labels = self._nodes.labels[node] if self._nodes.labels else {}
        lacking = [f"{key}={value}" for key, value in selector if labels.get(key) != value]
        return (Bar.LABEL, lacking[0]) if lacking else (Bar.TYPE, type_)
