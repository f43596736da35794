"""Why each job waits or changed, worked out after the fact and only when somebody asks.

For a job that lost workers it says who got the room, for one that can never run what rules the nodes out. It decides
nothing and guesses no motives: a policy is not asked why it counted as it did.
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
    """One reason for every job that changed or waits. `offered` is the snapshot that the policy was last asked about;
    `claimants` are serving pods that rows give room to."""
    unit = "device" if snapshot.nodes.unit is ResourceKind.DEVICES else "CPU"
    if reserving is None:
        changed = _changes(snapshot, actions)
    else:
        changed = [
            _change(action, snapshot.jobs.name_of(action.row), (f"serving pod {reserving[action.row]}",))
            for action in actions
        ]
    return [reason._replace(unit=unit) for reason in changed] + _waits(snapshot, offered, actions, unit)


def _changes(snapshot: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    evictors = _Evictors(snapshot, actions)
    return [_change(action, snapshot.jobs.name_of(action.row), evictors.of(action)) for action in actions]


def _change(action: Action, job: str, who: tuple[str, ...]) -> Reason:
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


def _waits(snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action], unit: str) -> list[Reason]:
    jobs = snapshot.jobs
    waits = jobs.workers == 0
    waits[[action.row for action in actions]] = False
    rows = np.flatnonzero(waits).tolist()
    if not rows:
        return []
    free = snapshot.free_units - _taken(snapshot, actions)
    least = np.maximum(jobs.minimum, 1)
    cost, asked = snapshot.cost(least), snapshot.cost(np.minimum(jobs.request, jobs.maximum))
    most = max_workers_by_shape(snapshot)[jobs.shape]
    held = offered.jobs.barred if offered.jobs.barred is not None else np.zeros(len(jobs), dtype=np.bool_)
    never, crowded = _Never(snapshot), _Crowded(snapshot, actions)
    reasons = []
    for row in rows:
        job, need = jobs.name_of(row), int(cost[row])
        verdict = never.reason(row, int(least[row]), int(most[row]))
        if verdict is not None:
            reasons.append(verdict)
        elif need > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (need - free) / MILLI, free / MILLI, unit=unit))
        elif held[row]:
            reasons.append(crowded.reason(row, int(least[row]), free)._replace(unit=unit))
        elif asked[row] > free:
            short = int(asked[row]) - free
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, short / MILLI, free / MILLI, unit=unit))
        else:
            reasons.append(Reason(row, job, Code.BEHIND, need / MILLI, unit=unit))
    return reasons


def _taken(snapshot: Snapshot, actions: Sequence[Action]) -> int:
    """Units that the plan takes from what is free."""
    rows = [action.row for action in actions]
    after = np.array([action.after.size for action in actions], dtype=np.int64)
    before = snapshot.jobs.workers[rows]
    base = (after > 0).astype(np.int64) - (before > 0)
    return int(((after - before) * snapshot.need[rows] + base * snapshot.base[rows]).sum())


# Who got the room that others gave up.


class _Evictors:
    """Follows room from those who gave it up to those who started or grew in it, node by node; who moved into it passes
    on what it left behind."""

    def __init__(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        self._snapshot = snapshot
        self._takers_at: dict[int, list[_Taker]] = {}
        if any(action.kind in (ActionKind.STOP, ActionKind.SHRINK) for action in actions):
            takers = [_taker(snapshot, action) for action in actions]
            self._needed = _where_needed(snapshot, takers)
            for taker in takers:
                for node in taker.taken:
                    self._takers_at.setdefault(node, []).append(taker)

    def of(self, action: Action) -> tuple[str, ...]:
        """The jobs that use what this one gives up, the largest user first; none where nobody needed it."""
        if action.evictor != NO_JOB:
            rows = np.flatnonzero(self._snapshot.jobs.key == action.evictor).tolist()
            return tuple(self._snapshot.jobs.name_of(row) for row in rows)
        if action.kind not in (ActionKind.STOP, ActionKind.SHRINK):
            return ()
        used = Counter[int]()
        nodes = _given(action)
        seen = set(nodes)
        while nodes:
            passed_on: set[int] = set()
            for node in nodes:
                for taker in self._takers_at.get(node, ()):
                    if taker.action.kind is ActionKind.MIGRATE:
                        passed_on |= _given(taker.action)
                    elif taker.action.row in self._needed:
                        used[taker.action.row] += int(taker.taken[node][self._snapshot.nodes.unit])
            nodes = passed_on - seen
            seen |= nodes
        order = sorted(used, key=lambda row: (-used[row], row))
        return tuple(self._snapshot.jobs.name_of(row) for row in order)


@dataclass(frozen=True)
class _Taker:
    """What one action takes, resource by node; nodes of which it takes nothing are absent."""

    action: Action
    shape: Shape
    taken: Mapping[int, Ints]


def _taker(snapshot: Snapshot, action: Action) -> _Taker:
    shape = snapshot.shapes[snapshot.jobs.shape.item(action.row)]
    before, after = _held_by(shape, action.before), _held_by(shape, action.after)
    nothing = np.zeros(len(ResourceKind), dtype=np.int64)
    more = {node: np.maximum(held - before.get(node, nothing), 0) for node, held in after.items()}
    return _Taker(action, shape, {node: taken for node, taken in more.items() if taken.any()})


def _held_by(shape: Shape, assignment: Assignment) -> dict[int, Ints]:
    """What a job holds at a home, resource by node."""
    worker = np.array([shape.devices, shape.cpus, shape.memory_bytes], dtype=np.int64)
    server = np.array([0, shape.ps_cpus, shape.ps_memory_bytes], dtype=np.int64)
    held: dict[int, Ints] = {}
    for runs, each in ((assignment.workers, worker), (assignment.ps, server)):
        for node, count in runs:
            held[node] = held.get(node, 0) + count * each
    return held


def _given(action: Action) -> set[int]:
    """The nodes on which an action leaves room."""
    after = Counter[int]()
    for node, count in action.after.workers:
        after[node] += count
    before = Counter[int]()
    for node, count in action.before.workers:
        before[node] += count
    left = {node for node in before if before[node] > after[node]}
    return left if action.after.workers else left | {node for node, _ in action.before.ps}


def _where_needed(snapshot: Snapshot, takers: Sequence[_Taker]) -> set[int]:
    """The rows that start or grow and could not all have done so in what was free before, on nodes that they accept."""
    nodes = snapshot.nodes
    gainers = [taker for taker in takers if taker.action.kind in (ActionKind.START, ActionKind.GROW)]
    if any(ANYWHERE in taker.taken for taker in gainers):
        is_short = _taken(snapshot, [taker.action for taker in gainers]) > snapshot.free_units
        return {taker.action.row for taker in gainers} if is_short else set()
    taken = np.zeros_like(nodes.free)
    for taker in gainers:
        for node, amounts in taker.taken.items():
            taken[:, node] += amounts
    needed, short = set(), {}
    for taker in gainers:
        if taker.shape not in short:
            short[taker.shape] = _shortage(nodes, taker.shape, taken)
        is_short, slots = short[taker.shape]
        if is_short or taker.action.after.size - taker.action.before.size > slots:
            needed.add(taker.action.row)
    return needed


def _shortage(nodes: Nodes, shape: Shape, taken: Ints) -> tuple[bool, int]:
    """Whether more is taken of the nodes that accept the shape than was free there, and how many of it had room."""
    accepting: Bools = nodes.accepting(shape)
    room = FreeCapacity(nodes)
    free = room.free.copy()
    for node, devices in room.shared.items():
        free[ResourceKind.DEVICES, node] += sum(devices.values())
    is_short = bool((taken[:, accepting].sum(axis=1) > free[:, accepting].sum(axis=1)).any())
    return is_short, int(room.slots(shape).sum())


# Who can never run.


class _Never:
    """Judges jobs against the cluster as it would be without any of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        nodes = snapshot.nodes
        self._empty = replace(nodes, free=nodes.capacity, shared={})
        self._beside: dict[tuple[Shape, int], int | None] = {}
        self._obstacles: dict[Shape, tuple[Obstacle, ...]] = {}

    def reason(self, row: int, least: int, most: int) -> Reason | None:
        """Why a job that needs `least` workers cannot run where `most` have room; None if it can."""
        jobs, shape = self._snapshot.jobs, self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        job = jobs.name_of(row)
        if not most:
            each, unit = (shape.devices, "device") if shape.devices else (shape.cpus, "CPU")
            return Reason(row, job, Code.NO_NODE, each / MILLI, unit=unit, obstacles=self._against(shape))
        if most < least:
            return Reason(row, job, Code.TOO_LARGE, least, most)
        if not shape.ps:
            return None
        beside = self._workers_beside(shape, least)
        if beside is None:
            return Reason(row, job, Code.NO_SERVERS, shape.ps, obstacles=self._against(_server(shape)))
        return Reason(row, job, Code.NOT_BESIDE_SERVERS, least, beside) if beside < least else None

    def _against(self, shape: Shape) -> tuple[Obstacle, ...]:
        """What rules nodes out for a shape, which is the same for all jobs that have it."""
        if shape not in self._obstacles:
            self._obstacles[shape] = _obstacles(self._snapshot.nodes, self._snapshot.nodes.capacity, shape)
        return self._obstacles[shape]

    def _workers_beside(self, shape: Shape, least: int) -> int | None:
        """Workers that have room once the parameter servers sit; None if not even those do."""
        key = shape, least
        if key not in self._beside:
            room = FreeCapacity(self._empty)
            self._beside[key] = int(room.slots(shape).sum()) if place_parameter_servers(room, shape, least) else None
        return self._beside[key]


def _server(shape: Shape) -> Shape:
    """One parameter server, as something to be placed by itself."""
    return Shape(0, shape.ps_cpus, shape.ps_memory_bytes, selector=shape.selector, tolerations=shape.tolerations)


# Who has no room now.


class _Crowded:
    """Says what is used up on the nodes, once the plan is carried out, for jobs that the placement had to turn down."""

    def __init__(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        self._snapshot, self._actions = snapshot, actions
        self._known: dict[tuple[Shape, int], tuple[Code, int, tuple[Obstacle, ...]]] = {}

    @cached_property
    def _then(self) -> Nodes:
        return project_plan(self._snapshot, self._actions).nodes

    def reason(self, row: int, least: int, free_units: int) -> Reason:
        """Why a job that needs `least` workers does not start though so many units are free."""
        jobs, shape = self._snapshot.jobs, self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        key = shape, least
        if key not in self._known:
            self._known[key] = self._found(shape, least)
        code, seated, obstacles = self._known[key]
        number = shape.ps if code is Code.SERVERS_NEED_ROOM else least
        beside = seated if code is Code.ROOM_FOR_SOME else free_units / MILLI
        return Reason(row, jobs.name_of(row), code, number, beside, obstacles=obstacles)

    def _found(self, shape: Shape, least: int) -> tuple[Code, int, tuple[Obstacle, ...]]:
        """What has no room, how many workers have, and what keeps one more off every node."""
        room = FreeCapacity(self._then)
        if shape.ps and not place_parameter_servers(room, shape, least):
            one = _server(shape)
            _fill(room, one)
            return Code.SERVERS_NEED_ROOM, 0, _obstacles(self._then, room.free, one)
        if int(_slots(room, shape).sum()) >= least:  # it was turned down while others were asked about
            return Code.NEEDS_ROOM, 0, ()
        seated = _fill(room, shape)
        obstacles = _obstacles(self._then, _with_parts(room) if shape.is_fraction else room.free, shape)
        return Code.ROOM_FOR_SOME if seated else Code.NEEDS_ROOM, seated, obstacles


def _fill(room: FreeCapacity, shape: Shape) -> int:
    """Take all the room that there is for this shape; how many that were."""
    slots = _slots(room, shape)
    for node in slots.nonzero()[0].tolist():
        room.take(shape, node, slots.item(node))
    return int(slots.sum())


def _slots(room: FreeCapacity, shape: Shape) -> Ints:
    # Nodes that shrank under their workers have less than nothing.
    return np.maximum(room.slots(shape), 0)


def _with_parts(room: FreeCapacity) -> Ints:
    """What is free by node, where a part of a shared device counts if no whole one is free."""
    free = room.free.copy()
    for node, devices in room.shared.items():
        free[ResourceKind.DEVICES, node] = max([free.item(ResourceKind.DEVICES, node), *devices.values()])
    return free


# What keeps a worker off the nodes.


def _obstacles(nodes: Nodes, have: Ints, shape: Shape) -> tuple[Obstacle, ...]:
    """What rules nodes out for a worker of this shape, each node by the first thing that does; those that rule out
    most first. `have` is what there is of each resource by node. Empty if some node could hold one."""
    groups, left = _refusing(nodes, shape)
    for bar, (resource, need) in _needs(shape).items():
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


def _refusing(nodes: Nodes, shape: Shape) -> tuple[list[Obstacle], Ints]:
    """Nodes whose labels or taints rule a worker out, and those that are left."""
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


def _needs(shape: Shape) -> dict[Bar, tuple[ResourceKind, int]]:
    return {
        Bar.DEVICES: (ResourceKind.DEVICES, shape.devices),
        Bar.CPUS: (ResourceKind.CPUS, shape.cpus),
        Bar.MEMORY: (ResourceKind.MEMORY, shape.memory_bytes),
    }
