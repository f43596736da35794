"""`topology`: fewest racks, then fewest nodes. For jobs with much communication between workers."""

from __future__ import annotations

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
    fill_in_order,
    place,
    placement,
)

_LARGEST = np.iinfo(np.int64).max


@placement("topology")
@dataclass(frozen=True)
class Topology:
    """The tightest node that holds the job, else the tightest rack, else the emptiest racks; emptiest nodes first
    inside."""

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        return place(self, snapshot, target)

    def choose(self, room: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
        slots = room.slots(shape)
        rack = room.nodes.rack
        own = dict.fromkeys(node for node, _ in (*assignment.ps, *assignment.workers))
        if own:
            beside = [
                node for node in np.argsort(-slots, kind="stable").tolist() if rack[node] in {rack[n] for n in own}
            ]
            others = [node for node in self._by_rack(slots, rack, count) if node not in own]
            return fill_in_order(slots, count, dict.fromkeys([*own, *beside, *others]))
        tightest = room.tightest(shape, count)
        if len(tightest) == 1 and tightest[0][1] == count:
            return tightest
        return fill_in_order(slots, count, self._by_rack(slots, rack, count))

    def _by_rack(self, slots: Ints, rack: Ints, count: int) -> list[int]:
        """Return nodes in filling order: those of the tightest rack that holds the job, else racks emptiest first."""
        in_rack = np.bincount(rack, weights=slots).astype(np.int64)
        holds = in_rack >= count
        first = int(np.where(holds, in_rack, _LARGEST).argmin()) if holds.any() else int(in_rack.argmax())
        order: list[int] = np.lexsort((np.arange(len(slots)), -slots, rack, -in_rack[rack], rack != first)).tolist()
        return order

    def choose_many(self, room: FreeCapacity, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        return room.take_best_fit(shape, count, jobs)

    def shed(self, assignment: Assignment, count: int) -> Assignment:
        return drop_last_workers(assignment, count)
