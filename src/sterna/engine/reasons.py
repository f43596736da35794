"""Reasons why each job waits or changed, derived from a finished plan when a caller asks for them.

The reason of a job that lost workers names the jobs that got its capacity; the reason of a job that can never run lists
the obstacles on the nodes. Reasons are derived from snapshot and plan alone; the policy is not consulted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sterna.engine.admission import max_workers_by_shape
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.placement.place import place_parameter_servers
from sterna.engine.projection import project_plan
from sterna.model.cluster import ANYWHERE, MILLI, Assignment, Bools, Ints, Nodes, ResourceKind, Shape
from sterna.model.plan import NO_JOB, Action, ActionKind
from sterna.model.reason import Bar, Code, Obstacle, Reason
from sterna.model.snapshot import Snapshot


def explain_actions(
    snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action], reserving: Mapping[int, str] | None = None
) -> list[Reason]:
    """Return one reason for each job that changed or waits.

    `offered` is the last snapshot that the policy was given; `reserving` maps each evicted row to the serving pod that
    it makes room for.
    """
    unit = "device" if snapshot.nodes.unit is ResourceKind.DEVICES else "CPU"
    if reserving is None:
        changed = _explain_changes(snapshot, actions)
    else:
        changed = [
            _explain_change(action, snapshot.jobs.name_of(action.row), (f"serving pod {reserving[action.row]}",))
            for action in actions
        ]
    return [reason._replace(unit=unit) for reason in changed] + _explain_waits(snapshot, offered, actions, unit)


def _explain_changes(snapshot: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    evictors = _Evictors(snapshot, actions)
    return [_explain_change(action, snapshot.jobs.name_of(action.row), evictors.find(action)) for action in actions]


def _explain_change(action: Action, job: str, who: tuple[str, ...]) -> Reason:
    old, new = action.before.size, action.after.size
    if action.kind is ActionKind.STOP:
        return Reason(action.row, job, Code.STOPPED if who else Code.STOPPED_BY_RULE, old, who=who)
    if action.kind is ActionKind.SHRINK:
        return Reason(action.row, job, Code.SHRANK if who else Code.SHRANK_BY_RULE, new, old, who)
    if action.kind is ActionKind.GROW:
        return Reason(action.row, job, Code.GREW, new, old)
    if action.kind is ActionKind.MIGRATE:
        return Reason(action.row, job, Code.MOVED_FOR if who else Code.MOVED, new, who=who)
    if action.kind is ActionKind.SET_CPU_SHARE:
        return Reason(action.row, job, Code.SHARED, round(1.0 if action.cpu_share is None else action.cpu_share, 2))
    return Reason(action.row, job, Code.STARTED, new)


def _explain_waits(snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action], unit: str) -> list[Reason]:
    jobs = snapshot.jobs
    waits = jobs.workers == 0
    waits[[action.row for action in actions]] = False
    rows = np.flatnonzero(waits).tolist()
    if not rows:
        return []
    free = snapshot.free_units - _unit_change(snapshot, actions)
    least = np.maximum(jobs.minimum, 1)
    cost, asked = snapshot.cost(least), snapshot.cost(np.minimum(jobs.request, jobs.maximum))
    most = max_workers_by_shape(snapshot)[jobs.shape]
    capped = offered.jobs.barred if offered.jobs.barred is not None else np.zeros(len(jobs), dtype=np.bool_)
    feasibility, shortage = _Feasibility(snapshot), _Shortage(snapshot, actions)
    reasons = []
    for row in rows:
        job, need = jobs.name_of(row), int(cost[row])
        verdict = feasibility.reason(row, int(least[row]), int(most[row]))
        if verdict is not None:
            reasons.append(verdict)
        elif need > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (need - free) / MILLI, free / MILLI, unit=unit))
        elif capped[row]:
            reasons.append(shortage.reason(row, int(least[row]), free)._replace(unit=unit))
        elif asked[row] > free:
            short = int(asked[row]) - free
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, short / MILLI, free / MILLI, unit=unit))
        else:
            reasons.append(Reason(row, job, Code.BEHIND, need / MILLI, unit=unit))
    return reasons


def _unit_change(snapshot: Snapshot, actions: Sequence[Action]) -> int:
    """Number of free units that the actions use, less those that they free."""
    rows = [action.row for action in actions]
    after = np.array([action.after.size for action in actions], dtype=np.int64)
    before = snapshot.jobs.workers[rows]
    base = (after > 0).astype(np.int64) - (before > 0)
    return int(((after - before) * snapshot.need[rows] + base * snapshot.base[rows]).sum())


# Evictors of jobs that lost workers.


class _Evictors:
    """Finds, node by node, the jobs that start or grow in capacity that other jobs free.

    A job that moves into freed capacity passes on the capacity that it leaves.
    """

    def __init__(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        self._snapshot = snapshot
        self._takers_at: dict[int, list[_Taker]] = {}
        if any(action.kind in (ActionKind.STOP, ActionKind.SHRINK) for action in actions):
            takers = [_make_taker(snapshot, action) for action in actions]
            self._needed = _rows_short_of_capacity(snapshot, takers)
            for taker in takers:
                for node in taker.taken:
                    self._takers_at.setdefault(node, []).append(taker)

    def find(self, action: Action) -> tuple[str, ...]:
        """Return the jobs that use the capacity this action frees, the largest first; empty if no job needed it."""
        if action.evictor != NO_JOB:
            rows = np.flatnonzero(self._snapshot.jobs.key == action.evictor).tolist()
            return tuple(self._snapshot.jobs.name_of(row) for row in rows)
        if action.kind not in (ActionKind.STOP, ActionKind.SHRINK):
            return ()
        used = Counter[int]()
        nodes = _nodes_freed_by(action)
        seen = set(nodes)
        while nodes:
            passed_on: set[int] = set()
            for node in nodes:
                for taker in self._takers_at.get(node, ()):
                    if taker.action.kind is ActionKind.MIGRATE:
                        passed_on |= _nodes_freed_by(taker.action)
                    elif taker.action.row in self._needed:
                        used[taker.action.row] += int(taker.taken[node][self._snapshot.nodes.unit])
            nodes = passed_on - seen
            seen |= nodes
        order = sorted(used, key=lambda row: (-used[row], row))
        return tuple(self._snapshot.jobs.name_of(row) for row in order)


@dataclass(frozen=True)
class _Taker:
    """An action and the resources that it takes on each node; nodes on which it takes nothing are absent."""

    action: Action
    shape: Shape
    taken: Mapping[int, Ints]


def _make_taker(snapshot: Snapshot, action: Action) -> _Taker:
    shape = snapshot.shapes[snapshot.jobs.shape.item(action.row)]
    before, after = _usage_by_node(shape, action.before), _usage_by_node(shape, action.after)
    nothing = np.zeros(len(ResourceKind), dtype=np.int64)
    more = {node: np.maximum(held - before.get(node, nothing), 0) for node, held in after.items()}
    return _Taker(action, shape, {node: taken for node, taken in more.items() if taken.any()})


def _usage_by_node(shape: Shape, assignment: Assignment) -> dict[int, Ints]:
    """Resources that an assignment uses on each node."""
    worker = np.array([shape.devices, shape.cpus, shape.memory_bytes], dtype=np.int64)
    server = np.array([0, shape.ps_cpus, shape.ps_memory_bytes], dtype=np.int64)
    held: dict[int, Ints] = {}
    for runs, each in ((assignment.workers, worker), (assignment.ps, server)):
        for node, count in runs:
            held[node] = held.get(node, 0) + count * each
    return held


def _nodes_freed_by(action: Action) -> set[int]:
    """Nodes on which an action frees capacity."""
    after = Counter[int]()
    for node, count in action.after.workers:
        after[node] += count
    before = Counter[int]()
    for node, count in action.before.workers:
        before[node] += count
    nodes = {node for node in before if before[node] > after[node]}
    return nodes if action.after.workers else nodes | {node for node, _ in action.before.ps}


def _rows_short_of_capacity(snapshot: Snapshot, takers: Sequence[_Taker]) -> set[int]:
    """Rows that start or grow and did not all fit in the capacity free before the plan, on nodes that accept them."""
    nodes = snapshot.nodes
    gainers = [taker for taker in takers if taker.action.kind in (ActionKind.START, ActionKind.GROW)]
    if any(ANYWHERE in taker.taken for taker in gainers):
        is_short = _unit_change(snapshot, [taker.action for taker in gainers]) > snapshot.free_units
        return {taker.action.row for taker in gainers} if is_short else set()
    taken = np.zeros_like(nodes.free)
    for taker in gainers:
        for node, amounts in taker.taken.items():
            taken[:, node] += amounts
    needed, short = set(), {}
    for taker in gainers:
        if taker.shape not in short:
            short[taker.shape] = _capacity_shortage(nodes, taker.shape, taken)
        is_short, slots = short[taker.shape]
        if is_short or taker.action.after.size - taker.action.before.size > slots:
            needed.add(taker.action.row)
    return needed


def _capacity_shortage(nodes: Nodes, shape: Shape, taken: Ints) -> tuple[bool, int]:
    """Return whether more is taken on the nodes that accept the shape than was free there, and how many of its workers
    fitted before."""
    accepting: Bools = nodes.accepting(shape)
    room = FreeCapacity(nodes)
    free = room.free.copy()
    for node, devices in room.shared.items():
        free[ResourceKind.DEVICES, node] += sum(devices.values())
    is_short = bool((taken[:, accepting].sum(axis=1) > free[:, accepting].sum(axis=1)).any())
    return is_short, int(room.slots(shape).sum())


# Jobs that can never run.


class _Feasibility:
    """Checks waiting jobs against the empty cluster."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        nodes = snapshot.nodes
        self._empty = replace(nodes, free=nodes.capacity, shared={})
        self._beside: dict[tuple[Shape, int], int | None] = {}
        self._obstacles: dict[Shape, tuple[Obstacle, ...]] = {}

    def reason(self, row: int, least: int, most: int) -> Reason | None:
        """Return why a job that needs `least` workers can never run; None if it can.

        `most` is the number of its workers that the empty cluster holds.
        """
        jobs, shape = self._snapshot.jobs, self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        job = jobs.name_of(row)
        if not most:
            each, unit = (shape.devices, "device") if shape.devices else (shape.cpus, "CPU")
            return Reason(row, job, Code.NO_NODE, each / MILLI, unit=unit, obstacles=self._obstacles_for(shape))
        if most < least:
            return Reason(row, job, Code.TOO_LARGE, least, most)
        if not shape.ps:
            return None
        beside = self._workers_beside(shape, least)
        if beside is None:
            return Reason(row, job, Code.NO_SERVERS, shape.ps, obstacles=self._obstacles_for(_server_shape(shape)))
        return Reason(row, job, Code.NOT_BESIDE_SERVERS, least, beside) if beside < least else None

    def _obstacles_for(self, shape: Shape) -> tuple[Obstacle, ...]:
        """Return the obstacles for a shape, cached because many jobs have the same shape."""
        if shape not in self._obstacles:
            self._obstacles[shape] = _obstacles(self._snapshot.nodes, self._snapshot.nodes.capacity, shape)
        return self._obstacles[shape]

    def _workers_beside(self, shape: Shape, least: int) -> int | None:
        """Number of workers that fit once the parameter servers are placed; None if the servers do not fit."""
        key = shape, least
        if key not in self._beside:
            room = FreeCapacity(self._empty)
            self._beside[key] = int(room.slots(shape).sum()) if place_parameter_servers(room, shape, least) else None
        return self._beside[key]


def _server_shape(shape: Shape) -> Shape:
    """Return the shape of a single parameter server."""
    return Shape(0, shape.ps_cpus, shape.ps_memory_bytes, selector=shape.selector, tolerations=shape.tolerations)


# Jobs that do not fit now.


class _Shortage:
    """Finds the resources that a job lacks after the plan is applied, for jobs that the placement could not fit."""

    def __init__(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        self._snapshot, self._actions = snapshot, actions
        self._known: dict[tuple[Shape, int], tuple[Code, int, tuple[Obstacle, ...]]] = {}

    @cached_property
    def _nodes_after(self) -> Nodes:
        return project_plan(self._snapshot, self._actions).nodes

    def reason(self, row: int, least: int, free_units: int) -> Reason:
        """Return why a job that needs `least` workers does not start although `free_units` are free."""
        jobs, shape = self._snapshot.jobs, self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        key = shape, least
        if key not in self._known:
            self._known[key] = self._diagnose(shape, least)
        code, fitting, obstacles = self._known[key]
        number = shape.ps if code is Code.SERVERS_NEED_ROOM else least
        beside = fitting if code is Code.ROOM_FOR_SOME else free_units / MILLI
        return Reason(row, jobs.name_of(row), code, number, beside, obstacles=obstacles)

    def _diagnose(self, shape: Shape, least: int) -> tuple[Code, int, tuple[Obstacle, ...]]:
        """Return the code of the shortage, the number of workers that fit, and the obstacles for one more."""
        room = FreeCapacity(self._nodes_after)
        if shape.ps and not place_parameter_servers(room, shape, least):
            one = _server_shape(shape)
            _fill(room, one)
            return Code.SERVERS_NEED_ROOM, 0, _obstacles(self._nodes_after, room.free, one)
        if int(_slots(room, shape).sum()) >= least:  # it was capped during negotiation although it fits in the end
            return Code.NEEDS_ROOM, 0, ()
        fitting = _fill(room, shape)
        obstacles = _obstacles(self._nodes_after, _free_with_fractions(room) if shape.is_fraction else room.free, shape)
        return Code.ROOM_FOR_SOME if fitting else Code.NEEDS_ROOM, fitting, obstacles


def _fill(room: FreeCapacity, shape: Shape) -> int:
    """Place as many workers of this shape as fit, and return their number."""
    slots = _slots(room, shape)
    for node in slots.nonzero()[0].tolist():
        room.take(shape, node, slots.item(node))
    return int(slots.sum())


def _slots(room: FreeCapacity, shape: Shape) -> Ints:
    # Free capacity is negative on nodes whose capacity shrank below what their workers use.
    return np.maximum(room.slots(shape), 0)


def _free_with_fractions(room: FreeCapacity) -> Ints:
    """Free resources by node; without a free device, the largest free fraction of a shared device counts."""
    free = room.free.copy()
    for node, devices in room.shared.items():
        free[ResourceKind.DEVICES, node] = max([free.item(ResourceKind.DEVICES, node), *devices.values()])
    return free


# Obstacles on nodes.


def _obstacles(nodes: Nodes, have: Ints, shape: Shape) -> tuple[Obstacle, ...]:
    """Return the obstacles that rule nodes out for a worker of this shape, the most frequent first.

    Each node counts for its first obstacle only. `have` is the available amount of each resource by node. The result is
    empty if at least one node can hold a worker.
    """
    groups, left = _label_and_taint_obstacles(nodes, shape)
    for bar, (resource, need) in _needs_by_bar(shape).items():
        is_short = have[resource, left] < need
        if is_short.any():
            scale = 1 if bar is Bar.MEMORY else MILLI
            most = max(int(have[resource, left[is_short]].max()), 0)
            groups.append(Obstacle(bar, int(is_short.sum()), "", most / scale, need / scale))
            left = left[~is_short]
    closed = int((~nodes.is_open[left]).sum())
    if closed < len(left):
        return ()
    if closed:
        groups.append(Obstacle(Bar.CLOSED, closed))
    return tuple(sorted(groups, key=lambda each: (-each.nodes, list(Bar).index(each.bar), each.what)))


def _label_and_taint_obstacles(nodes: Nodes, shape: Shape) -> tuple[list[Obstacle], Ints]:
    """Return the label and taint obstacles for a worker, and the nodes that have none of them."""
    if not shape.selector and not any(nodes.taints):
        return [], np.arange(len(nodes))
    counts = Counter[tuple[Bar, str]]()
    left = []
    for node in range(len(nodes)):
        labels = nodes.labels[node] if nodes.labels else {}
        taints = nodes.taints[node] if nodes.taints else frozenset()
        lacking = [f"{key}={value}" for key, value in shape.selector if labels.get(key) != value]
        if lacking:
            counts[Bar.LABEL, lacking[0]] += 1
        elif "*" not in shape.tolerations and taints - shape.tolerations:
            counts[Bar.TAINT, min(taints - shape.tolerations)] += 1
        else:
            left.append(node)
    return [Obstacle(bar, count, what) for (bar, what), count in counts.items()], np.array(left, dtype=np.int64)


def _needs_by_bar(shape: Shape) -> dict[Bar, tuple[ResourceKind, int]]:
    return {
        Bar.DEVICES: (ResourceKind.DEVICES, shape.devices),
        Bar.CPUS: (ResourceKind.CPUS, shape.cpus),
        Bar.MEMORY: (ResourceKind.MEMORY, shape.memory_bytes),
    }
