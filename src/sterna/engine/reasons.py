"""Why each job waits or changed, worked out after the fact and only when somebody asks.

For a job that lost workers it says who got the room, for one that can never run what rules the nodes out. It decides
nothing and guesses no motives: a policy is not asked why it counted as it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sterna.engine.admission import most_by_shape
from sterna.engine.placing import seat_ps
from sterna.engine.room import Room
from sterna.model.cluster import ANYWHERE, MILLI, Bools, Home, Ints, Nodes, Resource, Shape
from sterna.model.plan import NOBODY, Action, Kind
from sterna.model.reason import Bar, Code, Obstacle, Reason
from sterna.model.snapshot import Snapshot


def reasons_for(
    snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action], claimants: Mapping[int, str] | None = None
) -> list[Reason]:
    """One reason for every job that changed or waits. `offered` is the snapshot that the policy was last asked about;
    `claimants` are serving pods that rows give room to."""
    unit = "device" if snapshot.nodes.unit is Resource.DEVICES else "CPU"
    if claimants is None:
        changed = _changes(snapshot, actions)
    else:
        changed = [
            _change(action, snapshot.jobs.name_of(action.row), (f"serving pod {claimants[action.row]}",))
            for action in actions
        ]
    return [reason._replace(unit=unit) for reason in changed + _waits(snapshot, offered, actions)]


def _changes(snapshot: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    evictors = _Evictors(snapshot, actions)
    return [_change(action, snapshot.jobs.name_of(action.row), evictors.of(action)) for action in actions]


def _change(action: Action, job: str, who: tuple[str, ...]) -> Reason:
    old, new = action.before.size, action.after.size
    if action.kind is Kind.STOP:
        return Reason(action.row, job, Code.STOPPED if who else Code.STOPPED_BY_RULE, old, who=who)
    if action.kind is Kind.SHRINK:
        return Reason(action.row, job, Code.SHRANK if who else Code.SHRANK_BY_RULE, new, old, who)
    if action.kind is Kind.GROW:
        return Reason(action.row, job, Code.GREW, new, old)
    if action.kind is Kind.MIGRATE:
        return Reason(action.row, job, Code.MOVED_FOR if who else Code.MOVED, new, who=who)
    if action.kind is Kind.SHARE:
        return Reason(action.row, job, Code.SHARED, round(1.0 if action.share is None else action.share, 2))
    return Reason(action.row, job, Code.STARTED, new)


def _waits(snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    jobs = snapshot.jobs
    waits = jobs.workers == 0
    waits[[action.row for action in actions]] = False
    rows = np.flatnonzero(waits).tolist()
    if not rows:
        return []
    free = snapshot.free_units - _taken(snapshot, actions)
    least = np.maximum(jobs.minimum, 1)
    cost, asked = snapshot.cost(least), snapshot.cost(np.minimum(jobs.request, jobs.maximum))
    most = most_by_shape(snapshot)[jobs.shape]
    held = offered.jobs.barred if offered.jobs.barred is not None else np.zeros(len(jobs), dtype=np.bool_)
    never = _Never(snapshot)
    reasons = []
    for row in rows:
        job, need = jobs.name_of(row), int(cost[row])
        verdict = never.reason(row, int(least[row]), int(most[row]))
        if verdict is not None:
            reasons.append(verdict)
        elif need > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (need - free) / MILLI, free / MILLI))
        elif held[row]:
            reasons.append(Reason(row, job, Code.NEEDS_ROOM, int(least[row]), free / MILLI))
        elif asked[row] > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (int(asked[row]) - free) / MILLI, free / MILLI))
        else:
            reasons.append(Reason(row, job, Code.BEHIND, need / MILLI))
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
        if any(action.kind in (Kind.STOP, Kind.SHRINK) for action in actions):
            takers = [_taker(snapshot, action) for action in actions]
            self._needed = _where_needed(snapshot, takers)
            for taker in takers:
                for node in taker.taken:
                    self._takers_at.setdefault(node, []).append(taker)

    def of(self, action: Action) -> tuple[str, ...]:
        """The jobs that use what this one gives up, the largest user first; none where nobody needed it."""
        if action.evictor != NOBODY:
            rows = np.flatnonzero(self._snapshot.jobs.key == action.evictor).tolist()
            return tuple(self._snapshot.jobs.name_of(row) for row in rows)
        if action.kind not in (Kind.STOP, Kind.SHRINK):
            return ()
        used = Counter[int]()
        nodes = _given(action)
        seen = set(nodes)
        while nodes:
            passed_on: set[int] = set()
            for node in nodes:
                for taker in self._takers_at.get(node, ()):
                    if taker.action.kind is Kind.MIGRATE:
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
    nothing = np.zeros(len(Resource), dtype=np.int64)
    more = {node: np.maximum(held - before.get(node, nothing), 0) for node, held in after.items()}
    return _Taker(action, shape, {node: taken for node, taken in more.items() if taken.any()})


def _held_by(shape: Shape, home: Home) -> dict[int, Ints]:
    """What a job holds at a home, resource by node."""
    worker = np.array([shape.devices, shape.cpus, shape.memory_bytes], dtype=np.int64)
    server = np.array([0, shape.ps_cpus, shape.ps_memory_bytes], dtype=np.int64)
    held: dict[int, Ints] = {}
    for runs, each in ((home.workers, worker), (home.ps, server)):
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
    gainers = [taker for taker in takers if taker.action.kind in (Kind.START, Kind.GROW)]
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
    room = Room(nodes)
    free = room.free.copy()
    for node, devices in room.shared.items():
        free[Resource.DEVICES, node] += sum(devices.values())
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
            each = int(self._snapshot.need[row]) / MILLI
            return Reason(row, job, Code.NO_NODE, each, obstacles=self._against(shape))
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
            self._obstacles[shape] = _obstacles(self._snapshot.nodes, shape)
        return self._obstacles[shape]

    def _workers_beside(self, shape: Shape, least: int) -> int | None:
        """Workers that have room once the parameter servers sit; None if not even those do."""
        key = shape, least
        if key not in self._beside:
            room = Room(self._empty)
            self._beside[key] = int(room.slots(shape).sum()) if seat_ps(room, shape, least) else None
        return self._beside[key]


def _server(shape: Shape) -> Shape:
    """One parameter server, as something to be placed by itself."""
    return Shape(0, shape.ps_cpus, shape.ps_memory_bytes, selector=shape.selector, tolerations=shape.tolerations)


def _obstacles(nodes: Nodes, shape: Shape) -> tuple[Obstacle, ...]:
    """What rules nodes out for a worker of this shape, each node by the first thing that does; those that rule out
    most first. Empty if some node could hold one."""
    counts: dict[tuple[Bar, str], list[int]] = {}
    for node in range(len(nodes)):
        found = _obstacle(nodes, shape, node)
        if found is None:
            return ()
        counts.setdefault(found, []).append(node)
    groups = [_grouped(nodes, shape, bar, what, rows) for (bar, what), rows in counts.items()]
    return tuple(sorted(groups, key=lambda each: (-each.nodes, list(Bar).index(each.bar), each.what)))


def _obstacle(nodes: Nodes, shape: Shape, node: int) -> tuple[Bar, str] | None:
    """The first thing that keeps a worker off an empty node."""
    labels = nodes.labels[node] if nodes.labels else {}
    taints = nodes.taints[node] if nodes.taints else frozenset()
    lacking = [f"{key}={value}" for key, value in shape.selector if labels.get(key) != value]
    if lacking:
        return Bar.LABEL, lacking[0]
    if "*" not in shape.tolerations and taints - shape.tolerations:
        return Bar.TAINT, min(taints - shape.tolerations)
    for bar, (resource, need) in _needs(shape).items():
        if nodes.capacity[resource, node] < need:
            return bar, ""
    return None if nodes.is_open[node] else (Bar.CLOSED, "")


def _needs(shape: Shape) -> dict[Bar, tuple[Resource, int]]:
    # A part of a device is a part of a whole one.
    devices = max(shape.devices, MILLI) if shape.devices else 0
    return {
        Bar.DEVICES: (Resource.DEVICES, devices),
        Bar.CPUS: (Resource.CPUS, shape.cpus),
        Bar.MEMORY: (Resource.MEMORY, shape.memory_bytes),
    }


def _grouped(nodes: Nodes, shape: Shape, bar: Bar, what: str, rows: list[int]) -> Obstacle:
    needs = _needs(shape)
    if bar not in needs:
        return Obstacle(bar, len(rows), what)
    resource, need = needs[bar]
    scale = 1 if bar is Bar.MEMORY else MILLI
    need = shape.devices if bar is Bar.DEVICES else need
    return Obstacle(bar, len(rows), "", int(nodes.capacity[resource, rows].max()) / scale, need / scale)
