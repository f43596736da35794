"""From a target to actions: the part that all placements share.

Room is given back first, then the pickiest and largest wishes are met first. A placement only says which nodes to use
for so many workers of a shape (`choose`), and which workers leave when a job shrinks (`shed`).
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Protocol

import numpy as np

from sterna.engine.kernels.native import machine_code
from sterna.engine.placement.free_capacity import Room, Runs
from sterna.engine.registry import Misfit, Placed
from sterna.model.cluster import NOWHERE, Assignment, Ints, ResourceKind, Shape
from sterna.model.plan import Action, ActionKind, kind_of
from sterna.model.snapshot import JobKey, Snapshot

Wish = tuple[int, int, int, int, int, int, int]
"""Nodes that could host it, less the devices of one worker, less the workers wanted, shape, row, workers now, workers
wanted: in the order of serving, so that those with little choice come first, then the largest pieces."""

_STOP, _START, _GROW = ActionKind.STOP, ActionKind.START, ActionKind.GROW
"""By names of our own: to ask an enumeration takes longer."""

_assignment = partial(tuple.__new__, Assignment)
"""Make one of all its fields; the constructor of a named tuple takes twice as long."""

_MANY = 12
"""From so many new jobs of one size on, nodes are chosen for all of them in one step."""

_VERY_MANY = 256
"""From so many changes on, Python need not look for cycles among them."""


class Chooser(Protocol):
    """What tells one placement from another."""

    def choose(self, room: Room, shape: Shape, count: int, assignment: Assignment, /) -> Runs:
        """Nodes for up to `count` more workers of a job that sits at `home`. Fewer if there is no room."""
        ...

    def choose_many(self, room: Room, shape: Shape, count: int, jobs: int, /) -> Sequence[Runs]:
        """Nodes for up to `jobs` equal new jobs: the ones that `choose` would find, as far as they can be told in one
        step, and taken. The other jobs are asked for singly."""
        ...

    def shed(self, assignment: Assignment, count: int, /) -> Assignment:
        """The home without `count` of its workers."""
        ...


def place(chooser: Chooser, snapshot: Snapshot, target: Ints) -> Placed:
    """Actions that turn the present into `target`, as far as nodes allow."""
    jobs = snapshot.jobs
    workers = jobs.workers
    if target is workers:
        return Placed([], [])
    rows = _differing(target, workers)
    if len(rows) < 2:
        return _place_one(chooser, snapshot, target, rows[0]) if rows else Placed([], [])
    with _no_search_for_cycles(len(rows)):
        return _place_all(chooser, snapshot, target, rows)


@contextmanager
def _no_search_for_cycles(changes: int) -> Iterator[None]:
    """A cold start makes tens of thousands of tuples, none of which leads back to itself: to look for such among all
    objects of a process again and again would take a third of the time."""
    if changes < _VERY_MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _place_all(chooser: Chooser, snapshot: Snapshot, target: Ints, rows: list[int]) -> Placed:
    jobs = snapshot.jobs
    workers = jobs.workers
    shapes = snapshot.shapes.rows
    hosts = snapshot.nodes.hosts(snapshot.shapes)
    falling: list[tuple[int, int, int]] = []
    rising: list[Wish] = []
    olds, news = _entries(workers, rows), _entries(target, rows)
    codes = [0] * len(rows) if len(shapes) == 1 else _entries(jobs.shape, rows)
    for row, old, new, code in zip(rows, olds, news, codes, strict=True):
        if new > old:
            rising.append((hosts[code], -shapes[code].devices, -new, code, row, old, new))
        else:
            falling.append((new, row, code))
    room = Room(snapshot.nodes)
    released = _release(chooser, snapshot, room, falling)
    if not rising:
        return Placed(released, [])
    raised = _raise_all(chooser, snapshot, room, rising)
    if raised.misfits and len(rising) > 1:
        room = Room(snapshot.nodes)
        _release(chooser, snapshot, room, falling)
        raised = _minimum_first(chooser, snapshot, room, rising)
    return Placed(released + raised.actions, raised.misfits)


def place_plainly(snapshot: Snapshot, target: Ints) -> Placed | None:
    """The same for `stay`, by machine code, where a few jobs start or stop and all of them fit; else None."""
    code, workers = machine_code(), snapshot.jobs.workers
    if code is None or target is workers or not (snapshot.is_rigid and snapshot.devices_only):
        return None
    rows = code.differing(target, workers)
    if len(rows) >= _MANY:
        return None
    free = snapshot.nodes.free[ResourceKind.DEVICES].copy()
    need = snapshot.shapes[0].devices
    actions = code.start_and_stop(rows, target, snapshot.jobs.key, snapshot.assignments, free, need) if rows else []
    return None if actions is None else Placed(actions, [])


def _place_one(chooser: Chooser, snapshot: Snapshot, target: Ints, row: int) -> Placed:
    """The same where one job changes, as in most rounds: no order to find."""
    jobs, room = snapshot.jobs, Room(snapshot.nodes)
    old, new = jobs.workers.item(row), target.item(row)
    code = jobs.shape.item(row) if len(snapshot.shapes) > 1 else 0
    if new < old:
        return Placed(_release(chooser, snapshot, room, [(new, row, code)]), [])
    assignment = snapshot.assignment_of(row) if old else NOWHERE
    after, fitted = _raised(chooser, room, snapshot.shapes.rows[code], assignment, new, jobs.minimum.item(row))
    misfits = [Misfit(row, fitted)] if fitted < new else []
    if fitted <= old:
        return Placed([], misfits)
    return Placed([Action(_GROW if old else _START, JobKey(jobs.key.item(row)), row, assignment, after)], misfits)


def _entries(column: Ints, rows: list[int]) -> list[int]:
    """A column in these rows."""
    entries: list[int] = [column.item(row) for row in rows] if len(rows) < _MANY else column.take(rows).tolist()
    return entries


def _differing(target: Ints, workers: Ints) -> list[int]:
    """Rows in which the two differ."""
    code = machine_code()
    if code is not None:
        return code.differing(target, workers)
    changed: list[int] = (target != workers).nonzero()[0].tolist()
    return changed


def _release(chooser: Chooser, snapshot: Snapshot, room: Room, falling: list[tuple[int, int, int]]) -> list[Action]:
    """Give room back: stops first, then shrinks, each in submit order."""
    stops: list[Action] = []
    shrinks: list[Action] = []
    if not falling:
        return stops
    keys, assignments, shapes = snapshot.jobs.key, snapshot.assignments, snapshot.shapes.rows
    for new, row, code in falling:
        key, shape = JobKey(keys.item(row)), shapes[code]
        assignment = assignments[key]
        room.give(shape, assignment)
        if new:
            smaller = chooser.shed(assignment, assignment.size - new)
            room.occupy(shape, smaller)
            shrinks.append(Action(ActionKind.SHRINK, key, row, assignment, smaller))
        else:
            stops.append(Action(_STOP, key, row, assignment, NOWHERE))
    return stops + shrinks


def _raise_all(chooser: Chooser, snapshot: Snapshot, room: Room, rising: list[Wish]) -> Placed:
    """Pickiest and largest first; equal new jobs in one step where that is worth it."""
    starts: list[Action] = []
    grows: list[Action] = []
    misfits: list[Misfit] = []
    if len(rising) >= _MANY:
        room.expect_many()
        rising = _without_many(chooser, snapshot, room, rising, starts)
    jobs, shapes = snapshot.jobs, snapshot.shapes.rows
    if len(rising) > 1:
        rising.sort()
    for _, _, _, code, row, old, new in rising:
        assignment = snapshot.assignment_of(row) if old else NOWHERE
        after, fitted = _raised(chooser, room, shapes[code], assignment, new, jobs.minimum.item(row))
        if fitted > old:
            kind, actions = (_GROW, grows) if old else (_START, starts)
            actions.append(Action(kind, JobKey(jobs.key.item(row)), row, assignment, after))
        if fitted < new:
            misfits.append(Misfit(row, fitted))
    starts.sort(key=_row)
    grows.sort(key=_row)
    return Placed(starts + grows, misfits)


def _without_many(
    chooser: Chooser, snapshot: Snapshot, room: Room, rising: list[Wish], starts: list[Action]
) -> list[Wish]:
    """Start equal new jobs in one step where there are many of them; the wishes that are left."""
    groups: dict[tuple[int, ...], list[Wish]] = defaultdict(list)
    for wish in rising:
        groups[wish[:4]].append(wish)  # equal ones are placed alike
    left: list[Wish] = []
    for (_, _, less, code), alike in sorted(groups.items()):
        shape = snapshot.shapes[code]
        fresh = [wish[4] for wish in alike if not wish[5]]
        if len(fresh) >= _MANY and not shape.ps and not shape.is_fraction:
            started = _start_many(chooser, snapshot, room, fresh, -less, shape)
            starts += started
            if len(started) == len(alike):
                continue
            gone = {action.row for action in started}
            alike = [wish for wish in alike if wish[4] not in gone]
        left += alike
    return left


def _minimum_first(chooser: Chooser, snapshot: Snapshot, room: Room, rising: list[Wish]) -> Placed:
    """The same where not everything fits: nobody grows into the room that another needs to run at all."""
    seats: dict[int, Assignment] = {}
    misfits: list[Misfit] = []
    jobs, shapes = snapshot.jobs, snapshot.shapes
    entries = [(*wish[:2], -jobs.minimum.item(wish[4]), *wish[3:5]) for wish in rising if not wish[5]]
    for _, _, _, code, row in sorted(entries):
        least = jobs.minimum.item(row)
        assignment, fitted = _raised(chooser, room, shapes[code], NOWHERE, least, least)
        if fitted:
            seats[row] = assignment
        else:
            misfits.append(Misfit(row, 0))
    for _, _, _, code, row, old, new in rising:
        if not old and row not in seats:
            continue
        assignment = seats.get(row) or snapshot.assignment_of(row)
        seats[row], fitted = _raised(chooser, room, shapes[code], assignment, new, 0)
        if fitted < new:
            misfits.append(Misfit(row, fitted))
    actions = [_action(snapshot, row, snapshot.assignment_of(row), assignment) for row, assignment in seats.items()]
    return Placed(sorted((a for a in actions if a.before != a.after), key=_carrying_out), misfits)


def _action(snapshot: Snapshot, row: int, before: Assignment, after: Assignment) -> Action:
    return Action(kind_of(before, after), JobKey(snapshot.jobs.key.item(row)), row, before, after)


_row = itemgetter(2)
"""Of an action: the order of carrying out, among those of a kind."""

_carrying_out = itemgetter(0, 2)
"""Of an action: kind and row, the order of carrying out."""


def _start_many(
    chooser: Chooser, snapshot: Snapshot, room: Room, rows: list[int], count: int, shape: Shape
) -> list[Action]:
    """Start as many of these equal jobs as can be placed in one step."""
    assignments = [_assignment((runs, (), ())) for runs in chooser.choose_many(room, shape, count, len(rows))]
    rows = rows[: len(assignments)]
    starts = zip(snapshot.jobs.key[rows].tolist(), rows, assignments, strict=True)
    return [Action(_START, key, row, NOWHERE, assignment) for key, row, assignment in starts]


def _raised(
    chooser: Chooser, room: Room, shape: Shape, assignment: Assignment, new: int, least: int
) -> tuple[Assignment, int]:
    """A job with more workers than it has, as many of `new` as fit but not fewer than `least`, and how many it has
    then."""
    old, seat = assignment.size if assignment.workers else 0, assignment
    if shape.ps and not old:
        seat = Assignment((), seat_ps(room, shape, new))
        if not seat.ps:
            return assignment, 0
    runs = chooser.choose(room, shape, new - old, seat)
    fitted = old + (runs[0][1] if len(runs) == 1 else sum([count for _, count in runs]))
    if fitted < new and (fitted == old or fitted < least):
        if not old:
            room.give(shape, seat)
        return assignment, old
    slots = assignment.slots + room.take_runs(shape, runs)
    return _assignment((_joined(assignment.workers, runs) if old else tuple(runs), seat.ps, slots)), fitted


def seat_ps(room: Room, shape: Shape, workers: int) -> tuple[tuple[int, int], ...]:
    """Nodes for the parameter servers, taken at once: the tightest node that holds them with all workers, else the node
    that holds them with most workers, else as few nodes as hold them. Empty if they do not fit."""
    one = Shape(0, shape.ps_cpus, shape.ps_memory_bytes, selector=shape.selector, tolerations=shape.tolerations)
    seats = room.slots(one)
    whole = np.flatnonzero(seats >= shape.ps)
    if len(whole):
        beside = room.slots_beside(shape)[whole]
        enough = beside >= workers
        best = np.where(enough, beside, np.iinfo(np.int64).max).argmin() if enough.any() else beside.argmax()
        runs = [(int(whole[best]), shape.ps)]
    else:
        runs = most_first(seats, shape.ps, np.argsort(-seats, kind="stable").tolist())
        if sum(count for _, count in runs) < shape.ps:
            return ()
    for node, count in runs:
        room.take_ps(shape, node, count)
    return tuple(runs)


def _joined(runs: Runs, more: Runs) -> tuple[tuple[int, int], ...]:
    """Worker order kept: what is new goes to the end, joining the last run if it is on the same node."""
    if not runs:
        return tuple(more)
    joined = list(runs)
    for node, count in more:
        if joined[-1][0] == node:
            joined[-1] = (node, joined[-1][1] + count)
        else:
            joined.append((node, count))
    return tuple(joined)


def tail_shed(assignment: Assignment, count: int) -> Assignment:
    """Without the workers of the highest numbers."""
    runs = list(assignment.workers)
    left = count
    while left:
        node, here = runs.pop()
        if here > left:
            runs.append((node, here - left))
        left -= min(left, here)
    return Assignment(tuple(runs), assignment.ps, assignment.slots[: len(assignment.slots) - count])


def most_first(slots: Ints, count: int, order: Iterable[int]) -> list[tuple[int, int]]:
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
