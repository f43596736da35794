"""`consolidate`: a job that talks across nodes comes together when room has become free."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.engine.price import Memory, cost, devices, pays
from sterna.engine.registry import Move, Moves, knob, migration
from sterna.engine.room import Room
from sterna.model.cluster import ANYWHERE, Home
from sterna.model.snapshot import NEVER, Snapshot


@migration("consolidate")
@dataclass(frozen=True)
class Consolidate:
    """A job spread over nodes moves to fewer, if what it will save until its end is more than the move costs."""

    penalty: float = knob(0.1, "Part of its speed that a job loses while its workers sit on several nodes.", least=0.0)
    most: int = knob(1, "Moves of one job in its life.", least=0)
    margin: float = knob(1.0, "How many times its price a move must gain.", least=0.0)

    def __call__(self, snapshot: Snapshot) -> Moves:
        jobs = snapshot.jobs
        spread = [
            row
            for row in (jobs.workers > 1).nonzero()[0].tolist()
            if jobs.moves.item(row) < self.most and _nodes(snapshot.home_of(row)) > 1
        ]
        if not spread:
            return Moves()
        gains = {row: self._gain(snapshot, row) for row in spread}
        memory = Memory(snapshot)
        room = Room(snapshot.nodes)
        order = sorted(spread, key=lambda row: (-gains[row], row))
        moves: list[Move] = []
        while order:  # what one job leaves may be what another needs
            moved = next((move for row in order if (move := self._move(snapshot, memory, room, row, gains[row]))), None)
            if moved is None:
                break
            moves.append(moved)
            order.remove(moved.row)
        return Moves(moves)

    def _gain(self, snapshot: Snapshot, row: int) -> float:
        """Device-seconds saved until its end; nothing where that is unknown."""
        jobs = snapshot.jobs
        speed = snapshot.curves.speed_of(jobs.curve.item(row), jobs.workers.item(row))
        seconds = jobs.remaining.item(row) / speed / (1 - min(self.penalty, 0.99))
        return devices(snapshot, row) * seconds * self.penalty if 0 < seconds < NEVER else 0.0

    def _move(self, snapshot: Snapshot, memory: Memory, room: Room, row: int, gain: float) -> Move | None:
        """Where it fits on one node, now that it has left its own; the room is taken."""
        home, shape = snapshot.home_of(row), snapshot.shapes[snapshot.jobs.shape.item(row)]
        if home.workers[0][0] == ANYWHERE or not pays(gain, cost(snapshot, row), self.margin):
            return None
        room.give(shape, home)
        workers_only = Home((), home.ps)
        room.occupy(shape, workers_only)
        runs = room.tightest(shape, home.size)
        fitted = sum(count for _, count in runs)
        undoes = any(memory.undoes(row, node) for node, _ in runs)
        if fitted < home.size or len(runs) >= _nodes(home) or undoes:
            room.give(shape, workers_only)
            room.occupy(shape, home)
            return None
        slots: tuple[int, ...] = ()
        for node, count in runs:
            slots += room.take(shape, node, count)
        return Move(row, Home(tuple(runs), home.ps, slots))


def _nodes(home: Home) -> int:
    return len({node for node, _ in home.workers})
