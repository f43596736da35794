"""Re-packing: pack the jobs of the candidate nodes into empty bins, then match bins to nodes so that most workers stay.

The packing is best-fit-decreasing, with one bin for each candidate node, as large as that node. The matching maximizes
the number of workers that stay, among the nodes that hold a bin. Candidates are nodes with free devices and nodes that
the plan changes; only jobs entirely on them are moved. For many nodes the matching is solved group by group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.placement.place import Chooser
from sterna.engine.registry import Misfit, Placed
from sterna.model.cluster import Assignment, Bools, Ints, ResourceKind, Shape, slots_in
from sterna.model.plan import Action, kind_of
from sterna.model.snapshot import JobKey, Snapshot

Layout = dict[int, list[tuple[int, int]]]
"""Row -> (bin, workers) pairs, or (node, workers) pairs once bins are matched to nodes."""

_DENSE = 256
"""Largest number of candidate nodes that are matched all at once."""


def repack_nodes(chooser: Chooser, snapshot: Snapshot, target: Ints, placed: Placed) -> Placed:
    """Return `placed` with jobs moved so that more of the target fits; unchanged if no packing is found."""
    assignments = _assignments_after(snapshot, placed)
    wanted = {misfit.row: int(target[misfit.row]) for misfit in placed.misfits}
    nodes = _candidate_nodes(snapshot, assignments, placed)
    movable = [row for row, assignment in assignments.items() if _may_move(snapshot, assignment, row, nodes)]
    sizes = {row: wanted.get(row, assignments[row].size) for row in movable} | {
        row: size for row, size in wanted.items() if row not in assignments and _is_plain(snapshot, row)
    }
    free = _free_without(snapshot, assignments, movable)
    left = free[:, nodes].copy()
    layout = _best_fit_decreasing(snapshot, left, sizes)
    if layout is None:
        return placed
    present = {row: snapshot.assignment_of(row) for row in layout}
    on_nodes = _assign_nodes(layout, present, nodes, free, free[:, nodes] - left)
    return _as_actions(snapshot, assignments, on_nodes, placed, set(sizes))


def _assignments_after(snapshot: Snapshot, placed: Placed) -> dict[int, Assignment]:
    """Return the assignment of each row after the actions."""
    rows = np.flatnonzero(snapshot.jobs.workers).tolist()
    assignments = {row: snapshot.assignment_of(row) for row in rows}
    for action in placed.actions:
        assignments[action.row] = action.after
    return {row: assignment for row, assignment in assignments.items() if assignment.workers}


def _is_plain(snapshot: Snapshot, row: int) -> bool:
    shape = snapshot.shapes[int(snapshot.jobs.shape[row])]
    return not shape.ps and not shape.is_fraction and not shape.selector and not shape.tolerations


def _may_move(snapshot: Snapshot, assignment: Assignment, row: int, nodes: list[int]) -> bool:
    inside = set(nodes)
    return _is_plain(snapshot, row) and all(node in inside for node, _ in assignment.workers)


def _candidate_nodes(snapshot: Snapshot, assignments: dict[int, Assignment], placed: Placed) -> list[int]:
    """Return the open nodes without taints that have free devices after the plan, or that the plan changes."""
    room = FreeCapacity(snapshot.nodes)
    touched: set[int] = set()
    for action in placed.actions:
        shape = snapshot.shapes[int(snapshot.jobs.shape[action.row])]
        room.release(shape, action.before)
        room.occupy(shape, action.after)
        touched.update(node for node, _ in (*action.before.workers, *action.after.workers))
    taints = snapshot.nodes.taints
    plain = snapshot.nodes.is_open & np.array(
        [not (taints and taints[i]) for i in range(len(snapshot.nodes))], dtype=np.bool_
    )
    has_room = room.free[ResourceKind.DEVICES] > 0
    return [int(node) for node in np.flatnonzero(plain) if has_room[node] or node in touched]


def _free_without(snapshot: Snapshot, assignments: dict[int, Assignment], movable: Iterable[int]) -> Ints:
    """Return the free resources after the plan, if the movable jobs were on no node."""
    room = FreeCapacity(snapshot.nodes)
    codes = snapshot.jobs.shape
    for row in np.flatnonzero(snapshot.jobs.workers).tolist():
        room.release(snapshot.shapes[int(codes[row])], snapshot.assignment_of(row))
    moving = set(movable)
    for row, assignment in assignments.items():
        if row not in moving:
            room.occupy(snapshot.shapes[int(codes[row])], assignment)
    return room.free


def _best_fit_decreasing(snapshot: Snapshot, free: Ints, sizes: dict[int, int]) -> Layout | None:
    """Return bins for every job, taken from `free` in place, or None if they do not all fit."""
    codes = snapshot.jobs.shape
    layout: Layout = {}
    if not free.shape[1]:
        return None
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
            _take(free, node, shape, here)
            left -= here
        layout[row] = runs
    return layout


def _take(free: Ints, node: int, shape: Shape, count: int) -> None:
    free[ResourceKind.DEVICES, node] -= count * shape.devices
    free[ResourceKind.CPUS, node] -= count * shape.cpus
    free[ResourceKind.MEMORY, node] -= count * shape.memory_bytes


def _assign_nodes(
    layout: Layout, assignments: dict[int, Assignment], nodes: list[int], free: Ints, used: Ints
) -> Layout:
    """Return the layout with nodes in place of bins, so that most workers stay where they are."""
    overlap: dict[tuple[int, int], int] = defaultdict(int)
    place_of = {node: index for index, node in enumerate(nodes)}
    for row, runs in layout.items():
        old: dict[int, int] = defaultdict(int)
        for node, count in assignments[row].workers:
            if node in place_of:
                old[place_of[node]] += count
        for at, count in runs:
            for index, before in old.items():
                overlap[at, index] += min(count, before)
    room = free[:, nodes]
    node_of_bin = _match_bins(overlap, used, room) if len(nodes) <= _DENSE else _match_bins_by_group(overlap, room)
    return {row: [(nodes[node_of_bin[at]], count) for at, count in runs] for row, runs in layout.items()}


def _match_bins(overlap: dict[tuple[int, int], int], used: Ints, room: Ints) -> list[int]:
    """Return a node for each bin that holds its content, such that most workers stay."""
    from scipy.optimize import linear_sum_assignment

    fits: Bools = np.asarray((used[:, :, None] <= room[:, None, :]).all(axis=0))
    weight = np.where(fits, 0.0, -1e9)
    for pair, workers in overlap.items():
        if fits[pair]:
            weight[pair] = workers
    node_of_bin: list[int] = linear_sum_assignment(weight, maximize=True)[1].tolist()
    return node_of_bin


def _match_bins_by_group(overlap: dict[tuple[int, int], int], room: Ints) -> list[int]:
    """Return a node for each bin, for many nodes: only among nodes of equal room, each connected group by itself."""
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = [tuple(column) for column in room.T.tolist()]
    overlap = {(at, place): workers for (at, place), workers in overlap.items() if size[at] == size[place]}
    count = len(size)
    node_of_bin = [-1] * count
    pairs = np.array(list(overlap), dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1] + count)), shape=(2 * count, 2 * count))
    group = connected_components(graph, directed=False)[1]
    members: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for at in range(2 * count):
        members[int(group[at])][at >= count].append(at % count)
    for bins, places in members.values():
        weight = np.array([[overlap.get((at, place), 0) for place in places] for at in bins]).reshape(len(bins), -1)
        for i, j in zip(*linear_sum_assignment(weight, maximize=True), strict=True):
            if weight[i, j]:
                node_of_bin[bins[i]] = places[j]
    unused: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place in sorted(set(range(count)) - set(node_of_bin), reverse=True):
        unused[size[place]].append(place)
    return [node if node >= 0 else unused[size[at]].pop() for at, node in enumerate(node_of_bin)]


def _as_actions(
    snapshot: Snapshot, assignments: dict[int, Assignment], on_nodes: Layout, placed: Placed, part: set[int]
) -> Placed:
    """Return the actions that lead from the present to the layout; jobs outside `part` keep their actions."""
    actions = [action for action in placed.actions if action.row not in part]
    for row in part:
        before = snapshot.assignment_of(row)
        after = Assignment(_in_old_order(on_nodes[row], before))
        if _by_node(before) == _by_node(after):
            continue
        actions.append(Action(kind_of(before, after), JobKey(int(snapshot.jobs.key[row])), row, before, after))
    misfits = [Misfit(m.row, m.fitted) for m in placed.misfits if m.row not in part]
    return Placed(sorted(actions, key=lambda action: (action.kind, action.row)), misfits)


def _in_old_order(runs: list[tuple[int, int]], before: Assignment) -> tuple[tuple[int, int], ...]:
    """Sort the job's present nodes first, so that the workers of the lowest numbers stay."""
    seen = {node: at for at, (node, _) in enumerate(before.workers)}
    return tuple(sorted(runs, key=lambda run: (seen.get(run[0], len(seen)), run[0])))


def _by_node(assignment: Assignment) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for node, count in assignment.workers:
        counts[node] += count
    return dict(counts)
