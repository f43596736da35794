"""`stay`: running jobs keep their nodes; new ones go to the tightest node that holds them, largest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.engine.placement.repack import repack_nodes
from sterna.engine.price import ChangeCosts
from sterna.rules import (
    ActionKind,
    Assignment,
    FreeCapacity,
    Ints,
    NodeCounts,
    Placed,
    Shape,
    Snapshot,
    drop_last_workers,
    knob,
    place,
    placement,
)


@placement("stay")
@dataclass(frozen=True)
class Stay:
    """Best-fit-decreasing for what is new; a job that runs does not move unless a re-pack is asked for."""

    repack: str = knob(
        "never",
        "When to re-pack nodes, keeping most workers in place: never, when a job is stuck though "
        "enough devices are free, or always, at every change (as Voda does).",
        choices=("never", "stuck", "always"),
    )

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        placed = place(self, snapshot, target)
        if (self.repack == "always" and placed.actions) or (self.repack != "never" and placed.misfits):
            repacked = repack_nodes(self, snapshot, target, placed)
            can_move = ChangeCosts(snapshot).can_move
            if all(can_move[action.row] for action in repacked.actions if action.kind is ActionKind.MIGRATE):
                return repacked
        return placed

    def choose(self, room: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
        return (
            tightest(room, shape, count, assignment)
            if assignment.workers or assignment.ps
            else room.tightest(shape, count)
        )

    def choose_many(self, room: FreeCapacity, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        return room.take_tightest(shape, count, jobs)

    def shed(self, assignment: Assignment, count: int) -> Assignment:
        return drop_last_workers(assignment, count)


def tightest(room: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
    """Choose the job's own nodes first, then the tightest node that holds the rest, else the emptiest nodes."""
    own = dict.fromkeys(node for node, _ in (*assignment.workers, *assignment.ps))
    runs: list[tuple[int, int]] = []
    for node in own:
        here = min(count, room.slots_at(shape, node))
        if here:
            runs.append((node, here))
            count -= here
    return [*runs, *room.tightest(shape, count, own)] if count else runs
