"""The check: what no plan may do, whatever rule made it. A violation is our bug, never the user's."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.engine.room import Room
from sterna.errors import Bug
from sterna.model.cluster import ANYWHERE, NOWHERE, Resource
from sterna.model.plan import Action, Kind, Plan, kind_of
from sterna.model.snapshot import Snapshot


def check(plan: Plan, snapshot: Snapshot) -> None:
    """Raise `Bug` unless every job appears once, is whole or absent, and no node or device is used twice."""
    if not plan.actions:
        return
    _check_jobs(plan.actions, snapshot)
    _check_nodes(plan.actions, snapshot)


def _check_jobs(actions: Sequence[Action], snapshot: Snapshot) -> None:
    jobs, homes = snapshot.jobs, snapshot.homes
    minimum, maximum, keys = jobs.minimum, jobs.maximum, jobs.key
    seen: set[int] = set()
    latest = Kind.STOP
    for kind, key, row, before, after, _ in actions:
        if key in seen or keys.item(row) != key:
            raise Bug(f"{jobs.name_of(row)} appears twice in a plan, or under another's number")
        seen.add(key)
        if kind < latest:
            raise Bug(f"{jobs.name_of(row)}: {kind.name} comes after {latest.name}")
        latest = kind
        if homes.get(key, NOWHERE) != before:
            raise Bug(f"{jobs.name_of(row)} does not sit where the plan assumes")
        size = after.size
        if size and not minimum.item(row) <= size <= maximum.item(row):
            raise Bug(f"{jobs.name_of(row)} would get {size} workers, outside {minimum[row]} to {maximum[row]}")
        if kind is not kind_of(before, after):
            raise Bug(f"{jobs.name_of(row)}: {kind.name} from {before.size} to {size} workers")


def _check_nodes(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Carry the plan out on a copy: first all that frees, then all that takes."""
    if len(snapshot.shapes) == 1 and snapshot.shapes[0].is_plain:
        _check_devices(actions, snapshot)
        return
    if _sits_anywhere(actions[0]):
        _check_count(actions, snapshot)
        return
    room = Room(snapshot.nodes)
    shapes, codes = snapshot.shapes, snapshot.jobs.shape
    touched: dict[int, None] = {}
    for action in actions:
        if action.before.workers:
            room.give(shapes[codes.item(action.row)], action.before)
    for action in actions:
        if not action.after.workers:
            continue
        shape = shapes[codes.item(action.row)]
        if shape.ps and sum(count for _, count in action.after.ps) != shape.ps:
            raise Bug(f"{snapshot.jobs.name_of(action.row)} does not have all its parameter servers")
        room.occupy(shape, action.after)
        for node, _ in action.after.workers:
            touched[node] = None
    free = room.free
    for node in touched:
        if min(free.item(0, node), free.item(1, node), free.item(2, node)) < 0:
            raise Bug(f"node {snapshot.nodes.name[node]} would be over-committed")
    if room.shared and any(part < 0 for devices in room.shared.values() for part in devices.values()):
        raise Bug("a shared device would be over-committed")


def _sits_anywhere(action: Action) -> bool:
    return (action.before.workers or action.after.workers)[0][0] == ANYWHERE


def _check_devices(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """The same where only whole devices of one size count, which is the most common case by far."""
    need = snapshot.shapes[0].devices
    taken: dict[int, int] = {}
    for action in actions:
        for node, count in action.before.workers:
            taken[node] = taken.get(node, 0) - count
        for node, count in action.after.workers:
            taken[node] = taken.get(node, 0) + count
    if ANYWHERE in taken:
        _check_count(actions, snapshot)
        return
    free = snapshot.nodes.free[Resource.DEVICES]
    for node, count in taken.items():
        if count * need > free.item(node):
            raise Bug(f"node {snapshot.nodes.name[node]} would be over-committed")


def _check_count(actions: Sequence[Action], snapshot: Snapshot) -> None:
    need = snapshot.need
    grown = sum((action.after.size - action.before.size) * need.item(action.row) for action in actions)
    if grown > snapshot.free_units:
        raise Bug(f"{grown} units would be taken, {snapshot.free_units} are free")
