"""Validation of recorded rounds, so that a damaged one is rejected before it is decided again.

Journals are copied, cut and edited. Only invariants of every cluster are checked: the bounds of a running job may have
changed, and foreign pods may overcommit a node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import ANYWHERE, ResourceKind
from sterna.model.formatting import format_count
from sterna.model.plan import ActionKind
from sterna.model.snapshot import Snapshot

if TYPE_CHECKING:
    from sterna.control.journal import RoundLine, StaticFacts

INTS = ("key", "priority", "minimum", "maximum", "request", "workers", "shape", "curve", "promotions")
FLOATS = ("submit", "remaining", "first_start", "waiting_since", "attained", "executed")
SUMS = ("free_units", "held_units", "least_units", "max_workers", "is_rigid", "restart_seconds")

_NEVER_NEGATIVE = ("minimum", "maximum", "request", "workers", "promotions")
_ALWAYS_TOLD = ("submit", "attained", "executed")
_NEEDS = ("devices", "cpus", "memory_bytes", "ps", "ps_cpus", "ps_memory_bytes")


def check_world(world: StaticFacts) -> None:
    """Reject inconsistent nodes, shapes and curves."""
    nodes = len(world.node)
    if [len(row) for row in world.capacity] != [nodes] * len(ResourceKind):
        raise ValueError("capacity is not told for all nodes")
    if len(world.rack) != nodes or any(told and len(told) != nodes for told in (world.labels, world.taints)):
        raise ValueError("racks, labels or taints are not told for all nodes")
    if not world.curves or not all(row and all(speed > 0 for speed in row) for row in world.curves):
        raise ValueError("a speed-up curve is empty or not above 0")
    if any(not isinstance(shape[need], int) or shape[need] < 0 for shape in world.shapes for need in _NEEDS):
        raise ValueError("a shape needs what is not a whole number of at least 0")


def check_line(line: RoundLine, world: StaticFacts, counts_only: bool) -> None:
    """Reject an inconsistent round; `counts_only`: its placement only counts devices."""
    _check_columns(line, world)
    _check_nodes(line, world)
    _check_assignments(line, world, counts_only)
    _check_actions(line, line.actions, len(world.node))
    if line.shadow is not None:
        _check_actions(line, line.shadow.actions, len(world.node))


def check_room(snapshot: Snapshot) -> None:
    """Reject negative free capacity, unless running workers exceed the node."""
    nodes = snapshot.nodes
    if not (nodes.free < 0).any():
        return
    left = FreeCapacity(replace(nodes, free=nodes.capacity, shared={}))
    for row in snapshot.jobs.workers.nonzero()[0].tolist():
        assignment = snapshot.assignment_of(row)
        if assignment.workers[0][0] != ANYWHERE:
            left.occupy(snapshot.shapes[snapshot.jobs.shape.item(row)], assignment)
    wrong = np.argwhere(nodes.free < np.minimum(left.free, 0))
    if len(wrong):
        raise ValueError(f"less than nothing is free on {nodes.name[wrong.item(1)]}")


def _check_columns(line: RoundLine, world: StaticFacts) -> None:
    jobs = len(line.name)
    for names, columns in ((INTS, line.ints), (FLOATS, line.floats)):
        _check_lengths(names, columns, jobs)
    for name in _NEVER_NEGATIVE:
        if min(line.ints[name], default=0) < 0:
            raise ValueError(f"{name} of a job is negative")
    for name in _ALWAYS_TOLD:
        if None in line.floats[name]:
            raise ValueError(f"{name} of a job is not told")
    if len(set(line.ints["key"])) != jobs:
        raise ValueError("two jobs have the same key")
    for name, most in (("shape", len(world.shapes)), ("curve", len(world.curves))):
        if not 0 <= min(line.ints[name], default=0) <= max(line.ints[name], default=0) < most:
            raise ValueError(f"a job has a {name} that is not described")
    if any(not 0 <= row < jobs for entries in line.extras.values() for row, _ in entries):
        raise ValueError("something is told of a job that is not described")


def _check_lengths(names: Iterable[str], columns: Mapping[str, Sequence[object]], jobs: int) -> None:
    for name in names:
        if name not in columns:
            raise KeyError(name)
        if len(columns[name]) != jobs:
            raise ValueError(f"{name} has {len(columns[name])} entries for {format_count(jobs, 'job')}")


def _check_nodes(line: RoundLine, world: StaticFacts) -> None:
    nodes = len(world.node)
    if [len(row) for row in line.free] != [nodes] * len(ResourceKind):
        raise ValueError("free is not told for all nodes")
    if len(line.is_open) != nodes:
        raise ValueError("is_open is not told for all nodes")
    if any(not 0 <= node < nodes or free < 0 for node, _, free in line.shared):
        raise ValueError("a part of a device is free on no node, or less than nothing of it")


def _check_assignments(line: RoundLine, world: StaticFacts, counts_only: bool) -> None:
    row_of = {key: row for row, key in enumerate(line.ints["key"])}
    held = [0] * len(row_of)
    for key, assignment in line.assignments:
        if key not in row_of or held[row_of[key]]:
            raise ValueError("a job that is not described sits somewhere, or one sits twice")
        held[row_of[key]] = sum(count for _, count in assignment[0])
        for node, count in _runs(assignment):
            _check_run(node, count, len(world.node))
            if counts_only and node != ANYWHERE:
                raise ValueError("a job sits on a node though devices were only counted")
    wrong = [row for row, workers in enumerate(line.ints["workers"]) if workers != held[row]]
    if wrong:
        name, workers = line.name[wrong[0]], line.ints["workers"][wrong[0]]
        raise ValueError(f"{name} has {format_count(workers, 'worker')}, but {held[wrong[0]]} sit on nodes")


def _check_actions(line: RoundLine, actions: Sequence[tuple[str, int, int, Any, Any, str]], nodes: int) -> None:
    keys = line.ints["key"]
    for kind, key, row, before, after, _ in actions:
        if kind not in ActionKind.__members__:
            raise ValueError(f"no action is called {kind}")
        if not 0 <= row < len(keys) or keys[row] != key:
            raise ValueError("an action is about a job that is not described")
        for node, count in (*_runs(before), *_runs(after)):
            _check_run(node, count, nodes)


def _runs(assignment: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield node and count of workers and parameter servers."""
    for runs in assignment[:2]:
        yield from runs


def _check_run(node: int, count: int, nodes: int) -> None:
    if not ANYWHERE <= node < nodes:
        raise ValueError("a job sits on a node that is not described")
    if count < 1 or math.floor(count) != count:
        raise ValueError(f"{count} workers sit on a node")
