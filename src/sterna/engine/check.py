"""Invariants of every plan, checked before it is applied. A violation is a `Bug` of Sterna, not a user error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.errors import Bug
from sterna.model.cluster import ANYWHERE, NOWHERE, Shape
from sterna.model.plan import Action, ActionKind, Plan, kind_of
from sterna.model.snapshot import Snapshot


def check(plan: Plan, snapshot: Snapshot) -> None:
    """Raise `Bug` unless every job appears once, is whole or absent, and no node or device is used twice."""
    if plan.actions:
        _check_jobs(plan.actions, snapshot)
        _check_nodes(plan.actions, snapshot)


def _check_jobs(actions: Sequence[Action], snapshot: Snapshot) -> None:
    jobs, assignments = snapshot.jobs, snapshot.assignments
    minimum, maximum, keys = jobs.minimum, jobs.maximum, jobs.key
    seen: set[int] = set()
    latest = ActionKind.STOP
    for action in actions:
        kind, key, row, before, after = action.kind, action.key, action.row, action.before, action.after
        if key in seen or not 0 <= row < len(keys) or keys[row] != key:
            raise Bug(f"{jobs.name_of(row)} appears twice in a plan, or under another's number")
        seen.add(key)
        if kind < latest:
            raise Bug(f"{jobs.name_of(row)}: {kind.name} comes after {latest.name}")
        latest = kind
        assignment = assignments.get(key, NOWHERE)
        if assignment is not before and assignment != before:
            raise Bug(f"{jobs.name_of(row)} does not sit where the plan assumes", row)
        size = after.size if after.workers else 0
        if size and not minimum[row] <= size <= maximum[row]:
            raise Bug(f"{jobs.name_of(row)} would get {size} workers, outside {minimum[row]} to {maximum[row]}", row)
        if kind is ActionKind.SET_CPU_SHARE:
            if before != after or not before.workers or action.cpu_share is None or not action.cpu_share > 0:
                raise Bug(f"{jobs.name_of(row)}: a share of {action.cpu_share} for {before.size} workers", row)
        elif kind is not kind_of(before, after):
            raise Bug(f"{jobs.name_of(row)}: {kind.name} from {before.size} to {size} workers", row)


def _check_nodes(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Apply the plan to a copy of the free capacity: all releases first, then all allocations. A node that other pods
    over-committed may stay so, but must not get worse."""
    nodes, shapes, codes = snapshot.nodes, snapshot.shapes.rows, snapshot.jobs.shape
    if not _are_on_nodes(actions, len(nodes)):
        _check_count(actions, snapshot)
        return
    if not snapshot.devices_only:
        _check_node_access(actions, snapshot)
    room = FreeCapacity(nodes)
    for action in actions:
        if action.before.workers:
            room.release(shapes[codes[action.row]], action.before)
    for action in actions:
        if action.after.workers:
            shape = shapes[codes[action.row]]
            _check_gang(action, shape, snapshot)
            room.occupy(shape, action.after)
    free, free_before = room.free, nodes.free
    for action in actions:
        after = action.after
        for node, _ in after.workers + after.ps:
            for kind in range(free.shape[0]):
                if free[kind, node] < 0 and free[kind, node] < free_before[kind, node]:
                    raise Bug(f"node {nodes.name[node]} would be over-committed")
    if room.shared and any(part < 0 for devices in room.shared.values() for part in devices.values()):
        raise Bug("a shared device would be over-committed")


def _are_on_nodes(actions: Sequence[Action], nodes: int) -> bool:
    """Return True if all workers are on nodes that exist, False if devices are only counted (placement `none`)."""
    lowest, highest = nodes, ANYWHERE
    for action in actions:
        before, after = action.before, action.after
        for pairs in (before.workers, before.ps, after.workers, after.ps):
            for node, _ in pairs:
                lowest, highest = min(lowest, node), max(highest, node)
    if lowest > ANYWHERE and highest < nodes:
        return True
    if lowest < ANYWHERE or highest > ANYWHERE:
        raise Bug("a worker would sit on a node that does not exist")
    return False


def _check_gang(action: Action, shape: Shape, snapshot: Snapshot) -> None:
    after = action.after
    for _, count in after.workers:
        if count <= 0:
            raise Bug(f"{snapshot.jobs.name_of(action.row)} would have {count} workers on a node", action.row)
    if (after.ps or shape.ps) and sum([count for _, count in after.ps]) != shape.ps:
        raise Bug(f"{snapshot.jobs.name_of(action.row)} does not have all its parameter servers", action.row)
    if len(after.slots) != (after.size if shape.is_fraction else 0):
        raise Bug(f"{snapshot.jobs.name_of(action.row)} has a worker without a device to share", action.row)


def _check_node_access(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Raise `Bug` if a worker would be added to a node that does not accept it; workers already there may stay."""
    codes = snapshot.jobs.shape
    accepting = [snapshot.nodes.accepting(shape) for shape in snapshot.shapes.rows]
    for action in actions:
        comes = Counter[int]()
        for node, count in (*action.after.workers, *action.after.ps):
            comes[node] += count
        for node, count in (*action.before.workers, *action.before.ps):
            comes[node] -= count
        for node, count in comes.items():
            if count > 0 and not accepting[codes.item(action.row)][node]:
                job, host = snapshot.jobs.name_of(action.row), snapshot.nodes.name[node]
                raise Bug(f"{job} would come to {host}, which does not take it", action.row)


def _check_count(actions: Sequence[Action], snapshot: Snapshot) -> None:
    need, base = snapshot.need, snapshot.base
    grown = sum(
        (action.after.size - action.before.size) * need.item(action.row)
        + (bool(action.after.workers) - bool(action.before.workers)) * base.item(action.row)
        for action in actions
    )
    if grown > snapshot.free_units:
        raise Bug(f"{grown} units would be taken, {snapshot.free_units} are free")
