"""`pack`: DRAGON's placement. The whole job on one node, beside its parameter servers; the overflow on the roomiest
nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.rules import (
    Assignment,
    FreeCapacity,
    Ints,
    NodeCounts,
    Placed,
    Shape,
    Snapshot,
    fill_in_order,
    place,
    placement,
)


@placement("pack")
@dataclass(frozen=True)
class Pack:
    """One node for the whole job if one can hold it, else the parameter servers' node first, then where most fits."""

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        return place(self, snapshot, target)

    def choose(self, room: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
        own = dict.fromkeys(node for node, _ in (*assignment.ps, *assignment.workers))
        if not own:
            tightest = room.tightest(shape, count)
            if len(tightest) == 1 and tightest[0][1] == count:
                return tightest
        slots = room.slots(shape)
        roomiest = np.argsort(-slots, kind="stable")[: count + len(own)].tolist()
        others = (node for node in roomiest if node not in own)
        return fill_in_order(slots, count, [*own, *others])

    def choose_many(self, room: FreeCapacity, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        return room.take_best_fit(shape, count, jobs)

    def shed(self, assignment: Assignment, count: int) -> Assignment:
        """Remove workers from nodes other than the main one first, those with the fewest workers first; worker 0
        stays."""
        main = assignment.ps[0][0] if assignment.ps else assignment.workers[0][0]
        here: dict[int, int] = defaultdict(int)
        for node, workers in assignment.workers:
            here[node] += workers
        here[assignment.workers[0][0]] -= 1  # worker 0 is never removed
        order = sorted(here, key=lambda node: (node == main, here[node], node))
        leave: dict[int, int] = {}
        for node in order:
            leave[node] = min(count, here[node])
            count -= leave[node]
        return _remove_workers(assignment, leave)


def _remove_workers(assignment: Assignment, leave: dict[int, int]) -> Assignment:
    """Remove `leave[node]` workers from each node, highest numbers first."""
    device = list(assignment.slots)
    runs: list[tuple[int, int]] = []
    kept: list[int] = []
    for node, count in reversed(assignment.workers):
        gone = min(count, leave.get(node, 0))
        leave[node] = leave.get(node, 0) - gone
        if device:
            mine, device = device[-count:], device[:-count]
            kept = mine[: count - gone] + kept
        if count > gone:
            runs.append((node, count - gone))
    return Assignment(tuple(reversed(runs)), assignment.ps, tuple(kept))
