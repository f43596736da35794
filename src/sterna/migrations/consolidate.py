"""`consolidate`: moves a job that spans nodes to fewer ones when there is room."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from sterna.engine.price import MoveHistory
from sterna.rules import (
    ANYWHERE,
    MILLI,
    NEVER,
    Assignment,
    Floats,
    FreeCapacity,
    Ints,
    Move,
    Moves,
    ResourceKind,
    Snapshot,
    cost,
    knob,
    migration,
    pays,
)

_MAX_CANDIDATES = 32
"""Most candidates per round, those with the largest gain, to bound the time of a round."""


@migration("consolidate")
@dataclass(frozen=True)
class Consolidate:
    """A job spread over nodes moves to fewer, if what it will save until its end is more than the move costs."""

    penalty: float = knob(0.1, "Part of its speed that a job loses while its workers are on several nodes.", least=0.0)
    most: int = knob(1, "Moves of one job in its life.", least=0)
    margin: float = knob(1.0, "How many times its price a move must gain.", least=0.0)

    def __call__(self, snapshot: Snapshot) -> Moves:
        jobs, assignments = snapshot.jobs, snapshot.assignments
        rows = ((jobs.workers > 1) & (jobs.moves < self.most)).nonzero()[0]
        gains = self._gains(snapshot, rows)
        order = np.argsort(-gains, kind="stable")
        ranked = zip(rows[order].tolist(), jobs.key[rows[order]].tolist(), gains[order].tolist(), strict=True)
        spread = ((row, gain) for row, key, gain in ranked if _nodes(assignments[key]) > 1)
        likely = dict(islice(spread, _MAX_CANDIDATES))
        history, room = MoveHistory(snapshot), FreeCapacity(snapshot.nodes)
        moves: list[Move] = []
        while likely:  # a move may free the room that another one needs
            tries = (self._move(snapshot, history, room, row, gain) for row, gain in likely.items())
            moved = next((move for move in tries if move is not None), None)
            if moved is None:
                break
            moves.append(moved)
            del likely[moved.row]
            likely.update(islice(spread, 1))
        return Moves(moves)

    def _gains(self, snapshot: Snapshot, rows: Ints) -> Floats:
        """Return the device-seconds that each job saves until its end; 0 where that is unknown."""
        jobs = snapshot.jobs
        workers = jobs.workers[rows]
        speed = snapshot.curves.speed(jobs.curve[rows], workers)
        seconds = jobs.remaining[rows] / speed / (1 - min(self.penalty, 0.99))
        need = snapshot.need[rows] / MILLI if snapshot.nodes.unit is ResourceKind.DEVICES else np.zeros(len(rows))
        devices = workers * np.where(need > 0, need, 1.0)
        return np.where((seconds > 0) & (seconds < NEVER), devices * seconds * self.penalty, 0.0)

    def _move(self, snapshot: Snapshot, history: MoveHistory, room: FreeCapacity, row: int, gain: float) -> Move | None:
        """Return a move to fewer nodes, and take its room; None if there is none or it does not pay."""
        assignment, shape = snapshot.assignment_of(row), snapshot.shapes[snapshot.jobs.shape.item(row)]
        if assignment.workers[0][0] == ANYWHERE or not pays(gain, cost(snapshot, row), self.margin):
            return None
        room.release(shape, assignment)
        workers_only = Assignment((), assignment.ps)
        room.occupy(shape, workers_only)
        runs = room.tightest(shape, assignment.size)
        fitted = sum(count for _, count in runs)
        undoes = any(history.undoes(row, node) for node, _ in runs)
        if fitted < assignment.size or len(runs) >= _nodes(assignment) or undoes:
            room.release(shape, workers_only)
            room.occupy(shape, assignment)
            return None
        return Move(row, Assignment(tuple(runs), assignment.ps, room.take_workers(shape, runs)))


def _nodes(assignment: Assignment) -> int:
    return len({node for node, _ in assignment.workers}) if len(assignment.workers) > 1 else len(assignment.workers)
