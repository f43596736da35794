"""Turn a target into actions: the part that all placements share.

Jobs that stop or shrink release their nodes first; then the requests with fewest possible nodes, and among them the
largest, are placed. A placement chooses nodes for the workers of a shape (`choose`) and the workers that leave when a
job shrinks (`shed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

import numpy as np

from sterna.engine.placement.free_capacity import FreeCapacity, NodeCounts
from sterna.engine.registry import Misfit, Placed
from sterna.model.cluster import NOWHERE, Assignment, Ints, Shape
from sterna.model.plan import Action, ActionKind, kind_of
from sterna.model.snapshot import Snapshot

_MANY = 12
"""From this number of equal new jobs on, nodes are chosen for all of them in one step."""

_BY_ROW = attrgetter("row")
_BY_KIND_AND_ROW = attrgetter("kind", "row")


class Chooser(Protocol):
    """Choice of nodes, in which placements differ."""

    def choose(self, room: FreeCapacity, shape: Shape, count: int, assignment: Assignment, /) -> NodeCounts:
        """Return nodes for up to `count` more workers of a job that is at `assignment`; fewer if they do not fit."""
        ...

    def choose_many(self, room: FreeCapacity, shape: Shape, count: int, jobs: int, /) -> Sequence[NodeCounts]:
        """Choose and take nodes for up to `jobs` equal new jobs: the nodes that `choose` would return, for as many
        jobs as one step can place. The remaining jobs are placed one by one."""
        ...

    def shed(self, assignment: Assignment, count: int, /) -> Assignment:
        """Return the assignment without `count` of its workers."""
        ...


def place(chooser: Chooser, snapshot: Snapshot, target: Ints) -> Placed:
    """Return the actions that lead from the present to `target`, as far as nodes allow, and the misfits."""
    workers = snapshot.jobs.workers
    if target is workers:
        return Placed([], [])
    changed: list[int] = (target != workers).nonzero()[0].tolist()
    if not changed:
        return Placed([], [])
    rising, falling = list[int](), list[int]()
    for row in changed:
        (rising if target.item(row) > workers.item(row) else falling).append(row)
    room = FreeCapacity(snapshot.nodes)
    released = _release(chooser, snapshot, room, target, falling)
    if not rising:
        return Placed(released, [])
    raised = _raise_all(chooser, snapshot, room, target, rising)
    if raised.misfits and len(rising) > 1:
        room = FreeCapacity(snapshot.nodes)
        _release(chooser, snapshot, room, target, falling)
        raised = _place_minimum_first(chooser, snapshot, room, target, rising)
    return Placed(released + raised.actions, raised.misfits)


def _release(chooser: Chooser, snapshot: Snapshot, room: FreeCapacity, target: Ints, rows: list[int]) -> list[Action]:
    """Release nodes: stops first, then shrinks, each in submit order."""
    stops: list[Action] = []
    shrinks: list[Action] = []
    for row in rows:
        key, new, shape = snapshot.key_of(row), target.item(row), snapshot.shape_of(row)
        assignment = snapshot.assignments[key]
        room.release(shape, assignment)
        if new:
            smaller = chooser.shed(assignment, assignment.size - new)
            room.occupy(shape, smaller)
            shrinks.append(Action(ActionKind.SHRINK, key, row, assignment, smaller))
        else:
            stops.append(Action(ActionKind.STOP, key, row, assignment, NOWHERE))
    return stops + shrinks


def _raise_all(chooser: Chooser, snapshot: Snapshot, room: FreeCapacity, target: Ints, rows: list[int]) -> Placed:
    """Place the most urgent job first; equal new jobs in one step where there are many of them."""
    starts: list[Action] = []
    grows: list[Action] = []
    misfits: list[Misfit] = []
    if len(rows) >= _MANY:
        starts, rows = _start_equal_jobs(chooser, snapshot, room, target, rows)
    jobs = snapshot.jobs
    for row in _by_urgency(snapshot, rows, target):
        old, new, least = jobs.workers.item(row), target.item(row), jobs.minimum.item(row)
        before = snapshot.assignment_of(row) if old else NOWHERE
        after, fitted = _add_workers(chooser, room, snapshot.shape_of(row), before, new, least)
        if fitted > old:
            kind, actions = (ActionKind.GROW, grows) if old else (ActionKind.START, starts)
            actions.append(Action(kind, snapshot.key_of(row), row, before, after))
        if fitted < new:
            misfits.append(Misfit(row, fitted))
    if len(rows) > 1 or starts:
        starts.sort(key=_BY_ROW)
        grows.sort(key=_BY_ROW)
    return Placed(starts + grows, misfits)


def _by_urgency(snapshot: Snapshot, rows: list[int], workers: Ints) -> list[int]:
    """Sort rows: shapes that fewest nodes could host first, then the largest workers, then the most workers."""
    if len(rows) < 2:
        return rows
    codes, shapes, hosts = snapshot.jobs.shape, snapshot.shapes.rows, snapshot.nodes.hosts(snapshot.shapes)

    def urgency(row: int) -> tuple[int, int, int, int, int]:
        code = codes.item(row)
        return hosts[code], -shapes[code].devices, -workers.item(row), code, row

    return sorted(rows, key=urgency)


def _start_equal_jobs(
    chooser: Chooser, snapshot: Snapshot, room: FreeCapacity, target: Ints, rows: list[int]
) -> tuple[list[Action], list[int]]:
    """Start equal new jobs in one step where there are many of them; return the starts and the rows that are left."""
    jobs, starts = snapshot.jobs, list[Action]()
    changed = np.array(rows)
    fresh = changed[jobs.workers[changed] == 0]
    groups = jobs.shape[fresh] * (target.max(initial=0) + 1) + target[fresh]
    _, first, group, count = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    group_of = dict(zip(fresh[first].tolist(), range(len(first)), strict=True))
    for leader in _by_urgency(snapshot, fresh[first[count >= _MANY]].tolist(), target):
        shape, equal = snapshot.shape_of(leader), fresh[group == group_of[leader]]
        if shape.ps or shape.is_fraction:
            continue
        choices = chooser.choose_many(room, shape, target.item(leader), len(equal))
        equal = equal[: len(choices)]
        for row, key, workers in zip(equal.tolist(), jobs.key[equal].tolist(), choices, strict=True):
            starts.append(Action(ActionKind.START, key, row, NOWHERE, Assignment(tuple(workers))))
    if not starts:
        return starts, rows
    is_placed = np.zeros(len(jobs), dtype=np.bool_)
    is_placed[[action.row for action in starts]] = True
    return starts, changed[~is_placed[changed]].tolist()


def _place_minimum_first(
    chooser: Chooser, snapshot: Snapshot, room: FreeCapacity, target: Ints, rows: list[int]
) -> Placed:
    """Place requests that do not all fit: every job gets its minimum before any job grows beyond its own."""
    assignments: dict[int, Assignment] = {}
    misfits: list[Misfit] = []
    jobs = snapshot.jobs
    fresh = [row for row in rows if not jobs.workers.item(row)]
    for row in _by_urgency(snapshot, fresh, jobs.minimum):
        least = jobs.minimum.item(row)
        assignment, fitted = _add_workers(chooser, room, snapshot.shape_of(row), NOWHERE, least, least)
        if fitted:
            assignments[row] = assignment
        else:
            misfits.append(Misfit(row, 0))
    for row in rows if len(rows) >= _MANY else _by_urgency(snapshot, rows, target):
        before, new = assignments.get(row) or snapshot.assignment_of(row), target.item(row)
        if not before.workers:
            continue
        assignments[row], fitted = _add_workers(chooser, room, snapshot.shape_of(row), before, new, 0)
        if fitted < new:
            misfits.append(Misfit(row, fitted))
    actions = []
    for row, after in assignments.items():
        before = snapshot.assignment_of(row)
        if before != after:
            actions.append(Action(kind_of(before, after), snapshot.key_of(row), row, before, after))
    return Placed(sorted(actions, key=_BY_KIND_AND_ROW), misfits)


def _add_workers(
    chooser: Chooser, room: FreeCapacity, shape: Shape, assignment: Assignment, new: int, least: int
) -> tuple[Assignment, int]:
    """Raise a job to `new` workers, or to as many as fit if those are at least `least`; return its assignment and its
    number of workers."""
    old, current = assignment.size if assignment.workers else 0, assignment
    if shape.ps and not old:
        current = Assignment((), place_parameter_servers(room, shape, new))
        if not current.ps:
            return assignment, 0
    runs = chooser.choose(room, shape, new - old, current)
    fitted = old + (runs[0][1] if len(runs) == 1 else sum([count for _, count in runs]))
    if fitted < new and (fitted == old or fitted < least):
        if not old:
            room.release(shape, current)
        return assignment, old
    slots = assignment.slots + room.take_workers(shape, runs)
    return Assignment(_append_runs(assignment.workers, runs) if old else tuple(runs), current.ps, slots), fitted


def place_parameter_servers(room: FreeCapacity, shape: Shape, workers: int) -> tuple[tuple[int, int], ...]:
    """Take nodes for the parameter servers: the tightest node that holds them with all workers, else the node that
    holds them with most workers, else as few nodes as hold them. Return no nodes if they do not fit."""
    one = Shape(0, shape.ps_cpus, shape.ps_memory_bytes, selector=shape.selector, tolerations=shape.tolerations)
    seats = room.slots(one)
    whole = np.flatnonzero(seats >= shape.ps)
    if len(whole):
        beside = room.slots_beside(shape)[whole]
        enough = beside >= workers
        best = np.where(enough, beside, np.iinfo(np.int64).max).argmin() if enough.any() else beside.argmax()
        runs = [(int(whole[best]), shape.ps)]
    else:
        runs = fill_in_order(seats, shape.ps, np.argsort(-seats, kind="stable").tolist())
        if sum(count for _, count in runs) < shape.ps:
            return ()
    for node, count in runs:
        room.take_ps(shape, node, count)
    return tuple(runs)


def _append_runs(runs: NodeCounts, more: NodeCounts) -> tuple[tuple[int, int], ...]:
    """Append new workers so that the others keep their numbers; extend the last run if it is on the same node."""
    if not runs:
        return tuple(more)
    merged = list(runs)
    for node, count in more:
        if merged[-1][0] == node:
            merged[-1] = (node, merged[-1][1] + count)
        else:
            merged.append((node, count))
    return tuple(merged)


def drop_last_workers(assignment: Assignment, count: int) -> Assignment:
    """Return the assignment without the `count` workers of the highest numbers."""
    runs = list(assignment.workers)
    left = count
    while left:
        node, here = runs.pop()
        if here > left:
            runs.append((node, here - left))
        left -= min(left, here)
    return Assignment(tuple(runs), assignment.ps, assignment.slots[: len(assignment.slots) - count])


def fill_in_order(slots: Ints, count: int, order: Iterable[int]) -> list[tuple[int, int]]:
    """Fill nodes in this order until `count` workers are placed."""
    runs = []
    for node in order:
        here = min(count, int(slots[node]))
        if here:
            runs.append((node, here))
            count -= here
        if not count:
            break
    return runs
