"""Re-packing: lay the jobs of the nodes in question out anew, then name the new layout so that most workers stay.

The layout is best-fit-decreasing onto empty bins, one bin for each node in question and as large as that node; the
naming is a maximum-overlap assignment among nodes of equal room. Only nodes with room to gain and the jobs that sit
on them take part, and the assignment is solved for each connected group of them, never densely over the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from sterna.engine.placing import Chooser
from sterna.engine.registry import Misfit, Placed
from sterna.engine.room import Room
from sterna.model.cluster import Home, Ints, Resource, Shape, slots_in
from sterna.model.plan import Action, kind_of
from sterna.model.snapshot import JobKey, Snapshot

Layout = dict[int, list[tuple[int, int]]]
"""Row -> runs of (bin, workers)."""


def repacked(chooser: Chooser, snapshot: Snapshot, target: Ints, placed: Placed) -> Placed:
    """`placed`, with jobs moved where that lets more of the target fit; unchanged if it would not help or cannot be
    done."""
    homes = _homes_after(snapshot, placed)
    wanted = {misfit.row: int(target[misfit.row]) for misfit in placed.misfits}
    nodes = _nodes_in_question(snapshot, homes, placed)
    movable = [row for row, home in homes.items() if _may_move(snapshot, home, row, nodes)]
    sizes = {row: wanted.get(row, homes[row].size) for row in movable} | {
        row: size for row, size in wanted.items() if row not in homes and _is_plain(snapshot, row)
    }
    free = _free_without(snapshot, homes, movable)
    layout = _best_fit_decreasing(snapshot, free[:, nodes], sizes)
    if layout is None:
        return placed
    named = _named(layout, homes, nodes, free)
    return _as_actions(snapshot, homes, named, placed, set(sizes))


def _homes_after(snapshot: Snapshot, placed: Placed) -> dict[int, Home]:
    """Row -> home, once the actions are carried out."""
    rows = np.flatnonzero(snapshot.jobs.workers).tolist()
    homes = {row: snapshot.home_of(row) for row in rows}
    for action in placed.actions:
        homes[action.row] = action.after
    return {row: home for row, home in homes.items() if home.workers}


def _is_plain(snapshot: Snapshot, row: int) -> bool:
    shape = snapshot.shapes[int(snapshot.jobs.shape[row])]
    return not shape.ps and not shape.is_fraction and not shape.selector and not shape.tolerations


def _may_move(snapshot: Snapshot, home: Home, row: int, nodes: list[int]) -> bool:
    inside = set(nodes)
    return _is_plain(snapshot, row) and all(node in inside for node, _ in home.workers)


def _nodes_in_question(snapshot: Snapshot, homes: dict[int, Home], placed: Placed) -> list[int]:
    """Open nodes without taints that have room left once the plan is carried out, or that the plan touches."""
    room = Room(snapshot.nodes)
    touched: set[int] = set()
    for action in placed.actions:
        shape = snapshot.shapes[int(snapshot.jobs.shape[action.row])]
        room.give(shape, action.before)
        room.occupy(shape, action.after)
        touched.update(node for node, _ in (*action.before.workers, *action.after.workers))
    taints = snapshot.nodes.taints
    plain = snapshot.nodes.is_open & np.array(
        [not (taints and taints[i]) for i in range(len(snapshot.nodes))], dtype=np.bool_
    )
    has_room = room.free[Resource.DEVICES] > 0
    return [int(node) for node in np.flatnonzero(plain) if has_room[node] or node in touched]


def _free_without(snapshot: Snapshot, homes: dict[int, Home], movable: Iterable[int]) -> Ints:
    """What would be free if the movable jobs sat nowhere and the others where the plan puts them."""
    room = Room(snapshot.nodes)
    codes = snapshot.jobs.shape
    for row in np.flatnonzero(snapshot.jobs.workers).tolist():
        room.give(snapshot.shapes[int(codes[row])], snapshot.home_of(row))
    moving = set(movable)
    for row, home in homes.items():
        if row not in moving:
            room.occupy(snapshot.shapes[int(codes[row])], home)
    return room.free


def _best_fit_decreasing(snapshot: Snapshot, free: Ints, sizes: dict[int, int]) -> Layout | None:
    """Bins for every job, or None if they do not all fit."""
    codes = snapshot.jobs.shape
    free = free.copy()
    layout: Layout = {}
    for row in sorted(sizes, key=lambda r: (-sizes[r] * snapshot.shapes[int(codes[r])].devices, r)):
        shape = snapshot.shapes[int(codes[row])]
        runs, left = [], sizes[row]
        while left:
            slots = slots_in(free, shape)
            holds = slots >= left
            node = int(np.where(holds, slots, np.iinfo(np.int64).max).argmin()) if holds.any() else int(slots.argmax())
            here = min(left, int(slots[node]))
            if not here:
                return None
            runs.append((node, here))
            _charge(free, node, shape, here)
            left -= here
        layout[row] = runs
    return layout


def _charge(free: Ints, node: int, shape: Shape, count: int) -> None:
    free[Resource.DEVICES, node] -= count * shape.devices
    free[Resource.CPUS, node] -= count * shape.cpus
    free[Resource.MEMORY, node] -= count * shape.memory_bytes


def _named(layout: Layout, homes: dict[int, Home], nodes: list[int], free: Ints) -> dict[int, list[tuple[int, int]]]:
    """The layout with nodes for bins. A bin may only take the name of a node with exactly its room."""
    overlap: dict[tuple[int, int], int] = defaultdict(int)
    place_of = {node: index for index, node in enumerate(nodes)}
    room = [tuple(free[:, node].tolist()) for node in nodes]
    for row, runs in layout.items():
        old: dict[int, int] = defaultdict(int)
        for node, count in homes[row].workers if row in homes else ():
            old[place_of[node]] += count
        for at, count in runs:
            for index, before in old.items():
                if room[index] == room[at]:
                    overlap[at, index] += min(count, before)
    names = _assignment(overlap, room)
    return {row: [(nodes[names[at]], count) for at, count in runs] for row, runs in layout.items()}


def _assignment(overlap: dict[tuple[int, int], int], room: list[tuple[int, ...]]) -> list[int]:
    """For each bin the place that keeps most workers, group by group; places left over go to bins left over."""
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(room)
    names = [-1] * count
    pairs = np.array(list(overlap), dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1] + count)), shape=(2 * count, 2 * count))
    group = connected_components(graph, directed=False)[1]
    for label in np.unique(group[pairs[:, 0]]):
        bins = [at for at in range(count) if group[at] == label]
        places = [at for at in range(count) if group[at + count] == label]
        weight = np.array([[overlap.get((at, place), 0) for place in places] for at in bins])
        for i, j in zip(*linear_sum_assignment(weight, maximize=True), strict=True):
            if weight[i, j]:
                names[bins[i]] = places[j]
    unused: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place in sorted(set(range(count)) - set(names), reverse=True):
        unused[room[place]].append(place)
    return [name if name >= 0 else unused[room[at]].pop() for at, name in enumerate(names)]


def _as_actions(
    snapshot: Snapshot, homes: dict[int, Home], named: dict[int, list[tuple[int, int]]], placed: Placed, part: set[int]
) -> Placed:
    """Changes against the present; jobs that took no part keep the action they had."""
    actions = [action for action in placed.actions if action.row not in part]
    for row in part:
        before = snapshot.home_of(row)
        after = Home(_in_old_order(named[row], before))
        if _by_node(before) == _by_node(after):
            continue
        actions.append(Action(kind_of(before, after), JobKey(int(snapshot.jobs.key[row])), row, before, after))
    misfits = [Misfit(m.row, m.fitted) for m in placed.misfits if m.row not in part]
    return Placed(sorted(actions, key=lambda action: (action.kind, action.row)), misfits)


def _in_old_order(runs: list[tuple[int, int]], before: Home) -> tuple[tuple[int, int], ...]:
    """Nodes where it sits already come first, so that the lowest worker numbers stay."""
    seen = {node: at for at, (node, _) in enumerate(before.workers)}
    return tuple(sorted(runs, key=lambda run: (seen.get(run[0], len(seen)), run[0])))


def _by_node(home: Home) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for node, count in home.workers:
        counts[node] += count
    return dict(counts)
