"""`spread`: the default of kube-scheduler. Each worker goes to the node with the most room."""

from __future__ import annotations

import heapq
from collections import Counter
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
    drop_last_workers,
    place,
    placement,
)


@placement("spread")
@dataclass(frozen=True)
class Spread:
    """Every worker on the node with most room left, one by one; the baseline, not a recommendation."""

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        return place(self, snapshot, target)

    def choose(self, room: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
        slots = room.slots(shape)
        emptiest = np.argsort(-slots, kind="stable")[:count]
        heap = [(-int(slots[node]), int(node)) for node in emptiest if slots[node]]
        heapq.heapify(heap)
        chosen: Counter[int] = Counter()
        while heap and count:
            free, node = heap[0]
            chosen[node] += 1
            count -= 1
            if free < -1:
                heapq.heapreplace(heap, (free + 1, node))
            else:
                heapq.heappop(heap)
        return list(chosen.items())

    def choose_many(self, room: FreeCapacity, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        """Place jobs of one worker, emptiest node first. Larger jobs are left to `choose`."""
        if count > 1:
            return []
        slots = np.minimum(room.slots(shape), jobs)
        level = np.concatenate([np.arange(free, 0, -1) for free in slots.tolist()]) if slots.any() else np.arange(0)
        node = np.repeat(np.arange(len(slots)), slots)
        return room.take_one_node_each(shape, count, node[np.lexsort((node, -level))][:jobs])

    def shed(self, assignment: Assignment, count: int) -> Assignment:
        return drop_last_workers(assignment, count)
