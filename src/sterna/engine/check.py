"""The check: what no plan may do, whatever rule made it. A violation is our bug, never the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np

from sterna.engine.kernels.native import machine_code
from sterna.engine.placement.free_capacity import Room
from sterna.errors import Bug
from sterna.model.cluster import ANYWHERE, NOWHERE, Assignment, Ints, ResourceKind, Shape
from sterna.model.plan import Action, ActionKind, Plan, kind_of
from sterna.model.snapshot import Snapshot


def check(plan: Plan, snapshot: Snapshot) -> None:
    """Raise `Bug` unless every job appears once, is whole or absent, and no node or device is used twice."""
    if not plan.actions or _is_plainly_fine(plan.actions, snapshot):
        return
    _check_jobs(plan.actions, snapshot)
    _check_nodes(plan.actions, snapshot)


_STOP, _SHARE = ActionKind.STOP, ActionKind.SET_CPU_SHARE
"""By names of our own: to ask an enumeration takes longer."""

MANY = 64
"""Plans of so many actions are looked at as columns first; only what is wrong with one is found out one by one."""


def _is_plainly_fine(actions: Sequence[Action], snapshot: Snapshot) -> bool:
    """Whether nothing is wrong, where that can be told by machine code; else it is looked at again, and told what."""
    code, jobs = machine_code(), snapshot.jobs
    if code is None or not snapshot.devices_only:
        return False
    need, free = snapshot.shapes[0].devices, snapshot.nodes.free[ResourceKind.DEVICES]
    return code.are_fine(actions, jobs.key, jobs.minimum, jobs.maximum, snapshot.assignments, free, need)


def _check_jobs(actions: Sequence[Action], snapshot: Snapshot) -> None:
    if len(actions) >= MANY and _are_fine(actions, snapshot):
        return
    jobs, assignments = snapshot.jobs, snapshot.assignments
    minimum, maximum, keys = jobs.minimum, jobs.maximum, jobs.key
    seen: set[int] = set()
    latest = _STOP
    for kind, key, row, before, after, _, cpu_share, _ in actions:
        if key in seen or not 0 <= row < len(keys) or keys.item(row) != key:
            raise Bug(f"{jobs.name_of(row)} appears twice in a plan, or under another's number")
        seen.add(key)
        if kind < latest:
            raise Bug(f"{jobs.name_of(row)}: {kind.name} comes after {latest.name}")
        latest = kind
        assignment = assignments.get(key, NOWHERE)
        if assignment is not before and assignment != before:
            raise Bug(f"{jobs.name_of(row)} does not sit where the plan assumes", row)
        size = after.size if after.workers else 0
        if size and not minimum.item(row) <= size <= maximum.item(row):
            raise Bug(f"{jobs.name_of(row)} would get {size} workers, outside {minimum[row]} to {maximum[row]}", row)
        if kind is _SHARE:
            if before != after or not before.workers or cpu_share is None or not cpu_share > 0:
                raise Bug(f"{jobs.name_of(row)}: a share of {cpu_share} for {before.size} workers", row)
        elif kind is not kind_of(before, after):
            raise Bug(f"{jobs.name_of(row)}: {kind.name} from {before.size} to {size} workers", row)


def _are_fine(actions: Sequence[Action], snapshot: Snapshot) -> bool:
    """Whether nothing is wrong with any of these; if not, the loop says what."""
    kinds, keys, rows, befores, afters, *_ = zip(*actions, strict=True)
    jobs, assignments = snapshot.jobs, snapshot.assignments
    if len(set(keys)) < len(keys) or min(rows) < 0 or max(rows) >= len(jobs) or ActionKind.SET_CPU_SHARE in kinds:
        return False
    at = np.array(rows)
    if not np.array_equal(jobs.key.take(at), np.array(keys)) or list(kinds) != sorted(kinds):
        return False
    if [assignments.get(key, NOWHERE) for key in keys] != list(befores):
        return False
    old, new = _sizes(befores), _sizes(afters)
    if ((new > 0) & ((new < jobs.minimum.take(at)) | (new > jobs.maximum.take(at)))).any():
        return False
    resized = np.where(new == old, ActionKind.MIGRATE, np.where(new > old, ActionKind.GROW, ActionKind.SHRINK))
    expected: list[int] = np.where(new == 0, ActionKind.STOP, np.where(old == 0, ActionKind.START, resized)).tolist()
    return list(kinds) == expected


def _sizes(assignments: Sequence[Assignment]) -> Ints:
    runs = [assignment[0] for assignment in assignments]
    owner = np.arange(len(runs)).repeat([len(each) for each in runs])
    counts = [run[1] for each in runs for run in each]
    return np.bincount(owner, counts, len(runs)).astype(np.int64)


def _check_nodes(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Carry the plan out on a copy: first all that frees, then all that takes."""
    nodes, shapes = snapshot.nodes, snapshot.shapes
    if snapshot.devices_only:
        _check_devices(actions, snapshot)
        return
    touched = {run[0] for action in actions for run in (*action.after.workers, *action.after.ps)}
    if not touched <= nodes.rows:
        _check_afloat(actions, snapshot, touched)
        return
    _check_doors(actions, snapshot)
    room = Room(nodes)
    codes = snapshot.jobs.shape
    for action in actions:
        if action.before.workers:
            room.give(shapes[codes.item(action.row)], action.before)
    for action in actions:
        if action.after.workers:
            _check_gang(action, shapes[codes.item(action.row)], snapshot)
            room.occupy(shapes[codes.item(action.row)], action.after)
    for node in touched:
        if min(room.free.item(0, node), room.free.item(1, node), room.free.item(2, node)) < 0:
            raise Bug(f"node {nodes.name[node]} would be over-committed")
    if room.shared and any(part < 0 for devices in room.shared.values() for part in devices.values()):
        raise Bug("a shared device would be over-committed")


def _check_afloat(actions: Sequence[Action], snapshot: Snapshot, touched: Collection[int]) -> None:
    """Devices are only counted: then everybody sits nowhere in particular."""
    sits = any(run[0] != ANYWHERE for action in actions for run in action.before.workers)
    if sits or any(node != ANYWHERE for node in touched):
        raise Bug("a worker would sit on a node that does not exist")
    _check_count(actions, snapshot)


def _check_gang(action: Action, shape: Shape, snapshot: Snapshot) -> None:
    if sum(count for _, count in action.after.ps) != shape.ps:
        raise Bug(f"{snapshot.jobs.name_of(action.row)} does not have all its parameter servers", action.row)
    if len(action.after.slots) != (action.after.size if shape.is_fraction else 0):
        raise Bug(f"{snapshot.jobs.name_of(action.row)} has a worker without a device to share", action.row)


def _check_doors(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Nobody comes to a node that does not take it; who is there already may stay."""
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


def _check_devices(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """The same where only whole devices of one size count, which is the most common case by far."""
    need = snapshot.shapes[0].devices
    if len(actions) >= MANY and _fit(actions, snapshot.nodes.free[ResourceKind.DEVICES], need):
        return
    taken: dict[int, int] = {}
    for action in actions:
        for node, count in action.before.workers:
            taken[node] = taken.get(node, 0) - count
        for node, count in action.after.workers:
            if count <= 0:
                raise Bug(f"{snapshot.jobs.name_of(action.row)} would have {count} workers on a node", action.row)
            taken[node] = taken.get(node, 0) + count
    free = snapshot.nodes.free[ResourceKind.DEVICES]
    if taken and (min(taken) < 0 or max(taken) >= len(free)):
        _check_afloat(actions, snapshot, taken)
        return
    for node, count in taken.items():
        if count > 0 and count * need > free.item(node):
            raise Bug(f"node {snapshot.nodes.name[node]} would be over-committed")


def _fit(actions: Sequence[Action], free: Ints, need: int) -> bool:
    """Whether every node has what is taken from it; if not, the loop says which has not."""
    taken = np.zeros(len(free))
    for sign, assignments in ((-1, [action[3] for action in actions]), (1, [action[4] for action in actions])):
        numbers = list(chain.from_iterable(chain.from_iterable([assignment[0] for assignment in assignments])))
        if not numbers:
            continue
        nodes, counts = np.array(numbers).reshape(-1, 2).T
        if counts.min() <= 0 or nodes.min() < 0 or nodes.max() >= len(free):
            return False
        taken += sign * np.bincount(nodes, weights=counts, minlength=len(free))
    return not ((taken > 0) & (taken * need > free)).any()


def _check_count(actions: Sequence[Action], snapshot: Snapshot) -> None:
    need, base = snapshot.need, snapshot.base
    grown = sum(
        (action.after.size - action.before.size) * need.item(action.row)
        + (bool(action.after.workers) - bool(action.before.workers)) * base.item(action.row)
        for action in actions
    )
    if grown > snapshot.free_units:
        raise Bug(f"{grown} units would be taken, {snapshot.free_units} are free")
