"""Builders of small worlds for tests: say what matters of a job, a node or an instant, and leave out the rest.

The snapshot is built by plain loops over plain values, so that a test does not lean on the code it judges; only sums
come from `take_stock`, which backends that do not keep count use too. Nothing here simulates time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.model.cluster import ANYWHERE, MILLI, Assignment, Nodes, Shape, Shapes
from sterna.model.plan import Action, Decision, Mark
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot, compute_totals
from sterna.model.speedup import Curves, concave
from sterna.wiring import make_rules

Seats = tuple[tuple[str, int], ...]
"""Pairs of node name and number of replicas there."""

SOMEWHERE = "anywhere"
"""The node of a job whose devices are only counted."""


@dataclass(frozen=True)
class AJob:
    name: str
    minimum: int
    maximum: int
    request: int
    submit: float
    remaining: float
    priority: int
    speedup: tuple[float, ...] | None
    shape: Shape
    on: Seats
    ps_on: Seats
    slots: tuple[int, ...]
    first_start: float
    waiting_since: float
    attained: float
    executed: float
    promotions: int = 0
    unsaved: float = 0.0
    can_save: bool = True
    resize_seconds: float = math.nan
    spent: float = 0.0
    may_preempt: bool = True
    not_before: float = -NEVER

    @property
    def workers(self) -> int:
        return sum(count for _, count in self.on)


@dataclass(frozen=True)
class ANode:
    name: str
    devices: int
    cpus: int
    memory_bytes: int
    labels: Mapping[str, str]
    taints: frozenset[str]
    rack: int
    is_open: bool
    foreign_devices: int
    foreign_cpus: int


@dataclass(frozen=True)
class ClusterSpec:
    """Jobs and nodes that a snapshot was built from."""

    jobs: tuple[AJob, ...]
    nodes: tuple[ANode, ...]
    now: float
    last_action: float
    finished: tuple[float, ...]
    restart_seconds: float = 0.0
    evicts_unsaved: bool = False


def a_job(
    name: str = "a",
    size: int | tuple[int, int] = 1,
    *,
    workers: int | None = None,
    submit: float = 0.0,
    remaining: float = 100.0,
    priority: int = 0,
    speedup: Sequence[float] | None = None,
    devices: float = 1,
    cpus: float = 0,
    memory_bytes: int = 0,
    ps: int = 0,
    ps_cpus: float = 0,
    ps_memory_bytes: int = 0,
    selector: Mapping[str, str] | None = None,
    tolerates: Iterable[str] = (),
    is_shared: bool = False,
    on: Mapping[str, int] | Seats = (),
    ps_on: Mapping[str, int] | Seats = (),
    slots: Sequence[int] = (),
    first_start: float | None = None,
    waiting_since: float | None = None,
    attained: float = 0.0,
    executed: float = 0.0,
    unsaved: float = 0.0,
    can_save: bool = True,
    resize_seconds: float = math.nan,
    spent: float = 0.0,
    may_preempt: bool = True,
    not_before: float = -NEVER,
) -> AJob:
    """A job of `size` workers, or of (minimum, maximum), that asked for `workers`; it runs if it is `on` any node."""
    minimum, maximum = (size, size) if isinstance(size, int) else size
    shape = Shape(
        round(devices * MILLI),
        round(cpus * MILLI),
        memory_bytes,
        ps,
        round(ps_cpus * MILLI),
        ps_memory_bytes,
        tuple(sorted((selector or {}).items())),
        frozenset(tolerates),
        is_shared,
    )
    seats = _seats(on)
    return AJob(
        name,
        minimum,
        maximum,
        minimum if workers is None else workers,
        submit,
        remaining,
        priority,
        None if speedup is None else tuple(speedup),
        shape,
        seats,
        _seats(ps_on),
        tuple(slots),
        first_start if first_start is not None else (submit if seats else NEVER),
        submit if waiting_since is None else waiting_since,
        attained,
        executed,
        unsaved=unsaved,
        can_save=can_save,
        resize_seconds=resize_seconds,
        spent=spent,
        may_preempt=may_preempt,
        not_before=not_before,
    )


def a_node(
    name: str = "n0",
    devices: int = 4,
    *,
    cpus: float = 0,
    memory_bytes: int = 0,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    rack: int = 0,
    is_open: bool = True,
    foreign_devices: int = 0,
    foreign_cpus: float = 0,
) -> ANode:
    """A node of which others than our jobs hold `foreign_devices` and `foreign_cpus`."""
    return ANode(
        name,
        devices,
        round(cpus * MILLI),
        memory_bytes,
        labels or {},
        frozenset(taints),
        rack,
        is_open,
        foreign_devices,
        round(foreign_cpus * MILLI),
    )


def some_nodes(*devices: int) -> list[ANode]:
    """Nodes n0, n1, .. with these numbers of devices."""
    return [a_node(f"n{number}", count) for number, count in enumerate(devices)]


def a_snapshot(
    jobs: Iterable[AJob],
    nodes: Iterable[ANode] | int = 8,
    *,
    now: float = 0.0,
    last_action: float = -NEVER,
    finished: Sequence[float] = (),
    restart_seconds: float = 0.0,
    evicts_unsaved: bool = False,
) -> Snapshot:
    """The instant at which these jobs and nodes are all there is. Keys follow the order given, rows do not."""
    wide = [a_node("n0", nodes)] if isinstance(nodes, int) else list(nodes)
    return _built(
        ClusterSpec(tuple(jobs), tuple(wide), now, last_action, tuple(finished), restart_seconds, evicts_unsaved)
    )


class Decided(NamedTuple):
    """A decision, by names."""

    allocation: dict[str, int]
    assignments: dict[str, dict[str, int]]
    """Workers by node; jobs that wait are absent."""
    actions: list[tuple[str, str]]
    """Kind and job, in the order of carrying out."""
    reasons: dict[str, str]
    decision: Decision


def decided(snapshot: Snapshot, policy: str = "fifo", placement: str = "stay") -> Decided:
    """Decide, check, and return the result by names."""
    decision = decide(snapshot, make_rules(policy, placement))
    check(decision.plan, snapshot)
    names = [snapshot.jobs.name_of(row) for row in range(len(snapshot.jobs))]
    assignments = {name: snapshot.assignment_of(row) for row, name in enumerate(names)}
    for action in decision.plan:
        assignments[names[action.row]] = action.after
    return Decided(
        {name: assignment.size for name, assignment in assignments.items()},
        {name: _by_node(snapshot, assignment) for name, assignment in assignments.items() if assignment.workers},
        [(action.kind.name, names[action.row]) for action in decision.plan],
        {reason.job: reason.sentence for reason in decision.reasons},
        decision,
    )


def after(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """Return the snapshot with the plan applied and its marks stored."""
    cluster = spec_of(snapshot)
    changed = {snapshot.jobs.name_of(action.row): action for action in decision.plan}
    jobs = tuple(_carried_out(job, changed[job.name], snapshot) if job.name in changed else job for job in cluster.jobs)
    return _built(replace(cluster, jobs=jobs, last_action=cluster.now if changed else cluster.last_action))


def spec_of(snapshot: Snapshot) -> ClusterSpec:
    source = snapshot.jobs.source
    assert isinstance(source, Source), "only a snapshot that was built here knows what it was built from"
    return source.cluster


@dataclass
class Source:
    """Columns from plain lists."""

    cluster: ClusterSpec
    names: list[str]
    columns: dict[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def name_of(self, row: int) -> str:
        return self.names[row]

    def is_zero(self, name: str) -> bool:
        return False


@dataclass
class _Ledger:
    """Free capacity of each node while jobs are assigned one after the other."""

    free: list[list[int]]
    shared: dict[int, dict[int, int]] = field(default_factory=dict)

    def seat(self, shape: Shape, assignment: Assignment) -> None:
        slots = iter(assignment.slots)
        for node, count in assignment.ps:
            self.free[1][node] -= count * shape.ps_cpus
            self.free[2][node] -= count * shape.ps_memory_bytes
        for node, count in assignment.workers:
            self.free[1][node] -= count * shape.cpus
            self.free[2][node] -= count * shape.memory_bytes
            if not shape.is_fraction:
                self.free[0][node] -= count * shape.devices
                continue
            for _ in range(count):
                self._share(node, next(slots), shape.devices)

    def _share(self, node: int, device: int, part: int) -> None:
        devices = self.shared.setdefault(node, {})
        if device not in devices:
            devices[device] = MILLI
            self.free[0][node] -= MILLI
        devices[device] -= part


def _built(cluster: ClusterSpec) -> Snapshot:
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    row_of = {node.name: row for row, node in enumerate(nodes)} | {SOMEWHERE: ANYWHERE}
    keyed = sorted(enumerate(cluster.jobs), key=lambda pair: (pair[1].submit, pair[1].name))
    rows = [job for _, job in keyed]
    shapes = Shapes(tuple(dict.fromkeys(job.shape for job in rows)) or (Shape(),))
    curves = Curves(((1.0,), *dict.fromkeys(concave(job.speedup) for job in rows if job.speedup)))
    assignments = {
        JobKey(key): Assignment(_rows(job.on, row_of), _rows(job.ps_on, row_of), job.slots)
        for key, job in keyed
        if job.on
    }
    ledger = _Ledger(
        [
            [(node.devices - node.foreign_devices) * MILLI for node in nodes],
            [node.cpus - node.foreign_cpus for node in nodes],
            [node.memory_bytes for node in nodes],
        ]
    )
    anywhere_units = 0
    for key, job in keyed:
        if SOMEWHERE in dict(job.on):
            anywhere_units += job.workers * job.shape.devices
        elif job.on:
            ledger.seat(job.shape, assignments[JobKey(key)])
    columns = _columns([key for key, _ in keyed], rows, shapes, curves)
    barred = columns["maximum"] < columns["minimum"]
    jobs = Jobs(Source(cluster, [job.name for job in rows], columns), barred if barred.any() else None)
    table = _nodes(nodes, ledger)
    totals = compute_totals(jobs, table, shapes)
    totals = totals._replace(free_units=totals.free_units - anywhere_units)
    history = np.sort(np.array(cluster.finished, dtype=np.float64))
    return Snapshot(
        cluster.now,
        jobs,
        table,
        shapes,
        curves,
        assignments,
        *totals,
        cluster.last_action,
        lambda: history,
        cluster.restart_seconds,
        evicts_unsaved=cluster.evicts_unsaved,
    )


def _columns(keys: list[int], rows: list[AJob], shapes: Shapes, curves: Curves) -> dict[str, npt.NDArray[Any]]:
    whole = ("priority", "minimum", "maximum", "request", "workers", "promotions", "can_save", "may_preempt")
    real: tuple[str, ...] = (
        "submit",
        "remaining",
        "first_start",
        "waiting_since",
        "attained",
        "executed",
        "unsaved",
        "spent",
        "resize_seconds",
        "not_before",
    )
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.array([getattr(job, name) for job in rows], dtype=np.int64) for name in whole
    }
    columns |= {name: np.array([getattr(job, name) for job in rows], dtype=np.float64) for name in real}
    columns["key"] = np.array(keys, dtype=np.int64)
    columns["shape"] = np.array([shapes.rows.index(job.shape) for job in rows], dtype=np.int64)
    known = list(curves.rows)
    codes = [known.index(concave(job.speedup), 1) if job.speedup else 0 for job in rows]
    columns["curve"] = np.array(codes, dtype=np.int64)
    for values in columns.values():
        values.flags.writeable = False
    return columns


def _nodes(nodes: list[ANode], ledger: _Ledger) -> Nodes:
    capacity = [
        [(node.devices - node.foreign_devices) * MILLI for node in nodes],
        [node.cpus - node.foreign_cpus for node in nodes],
        [node.memory_bytes for node in nodes],
    ]
    return Nodes(
        tuple(node.name for node in nodes),
        np.array(capacity, dtype=np.int64).reshape(3, len(nodes)),
        np.array(ledger.free, dtype=np.int64).reshape(3, len(nodes)),
        np.array([node.is_open for node in nodes], dtype=np.bool_),
        np.array([node.rack for node in nodes], dtype=np.int64),
        tuple(node.labels for node in nodes),
        tuple(node.taints for node in nodes),
        ledger.shared,
    )


def _carried_out(job: AJob, action: Action, snapshot: Snapshot) -> AJob:
    names = snapshot.nodes.name
    assignment = action.after
    moved = replace(
        job, on=_named(assignment.workers, names), ps_on=_named(assignment.ps, names), slots=assignment.slots
    )
    if not assignment.workers:
        return replace(moved, waiting_since=snapshot.now)
    if action.mark is Mark.PROMOTED:
        moved = replace(moved, attained=0.0, executed=0.0, promotions=job.promotions + 1)
    return replace(moved, first_start=min(job.first_start, snapshot.now))


def _seats(on: Mapping[str, int] | Seats) -> Seats:
    return tuple(on.items()) if isinstance(on, Mapping) else on


def _rows(seats: Seats, row_of: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    return tuple((row_of[name], count) for name, count in seats)


def _named(runs: Iterable[tuple[int, int]], names: Sequence[str]) -> Seats:
    return tuple((SOMEWHERE if node == ANYWHERE else names[node], count) for node, count in runs)


def _by_node(snapshot: Snapshot, assignment: Assignment) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, count in _named(assignment.workers, snapshot.nodes.name):
        counts[name] = counts.get(name, 0) + count
    return counts
