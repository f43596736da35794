"""`specon`: moves converged jobs away from jobs that still improve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest

from sterna.engine.cpu_sharing.move_gain import MoveEvaluator, Option
from sterna.engine.cpu_sharing.shared_nodes import build_shared_nodes
from sterna.engine.price import MoveHistory
from sterna.model.growth import Strict
from sterna.rules import (
    ANYWHERE,
    NO_JOB,
    Assignment,
    Growth,
    GrowthRule,
    JobKey,
    Move,
    Moves,
    Snapshot,
    knob,
    migration,
)

_WEIGHT = {Growth.PROGRESSING: 3, Growth.WATCHING: 2, Growth.CONVERGED: 1}
"""Weight that a job adds to its node: SpeCon's order; its numbers were not published."""

_OWN_GUARD = 0.9
"""A job moves only if it ends at least a tenth sooner itself, because its category may be wrong and other jobs may come
to its new node."""


@migration("specon")
@dataclass(frozen=True)
class SpeCon:
    """A converged job moves to the node with the smallest weight, one a round and once in its life, if that pays.

    Categories are SpeCon's own. They come early and are often wrong, so the moved job must gain from the move, too.
    `strict` is the published rule: no price, no guard, and the job's own weight counts for its own node.
    """

    alpha: float = knob(0.1, "Progress up to this part of the job's own highest counts as low.")
    interval: float = knob(10.0, "Seconds between two samples of a job's metric.", least=0.1)
    period: float = knob(30.0, "Seconds between rounds of moves.", least=1.0)
    most: int = knob(1, "Moves of one job in its life.", least=0)
    margin: float = knob(1.0, "How many times its price a move must gain.", least=0.0)
    strict: bool = knob(False, "The published rule to the letter.")
    objective: str = knob(
        "finish", "Whose time counts as a gain: that of all jobs, or of jobs which still improve.",
        choices=("finish", "quality"),
    )  # fmt: skip

    @property
    def growth_rule(self) -> GrowthRule:
        """Growth rule that a backend uses for the categories that this migration reads."""
        return GrowthRule(strict=Strict.SPECON, alpha=self.alpha, interval_seconds=self.interval)

    def __call__(self, snapshot: Snapshot) -> Moves:
        jobs = snapshot.jobs
        if not jobs.workers.any():
            return Moves()
        history = MoveHistory(snapshot)
        soon = max(snapshot.now, history.last_move) + self.period
        if snapshot.now - history.last_move < self.period:
            return Moves((), history.last_move + self.period)
        if not ((jobs.growth == Growth.CONVERGED) & (jobs.moves < self.most) & (jobs.workers > 0)).any():
            return Moves((), soon)
        options = list(self._options(snapshot))
        move = None
        if self.strict:
            goes = (o for o in options if o.source != o.target and not history.undoes(o.row, o.target))
            move = next((_strict_move(snapshot, option) for option in goes), None)
        else:
            shared = build_shared_nodes(snapshot)
            if shared is None:
                return Moves()
            counts = None if self.objective == "finish" else jobs.growth != Growth.CONVERGED
            weighing = MoveEvaluator(snapshot, shared, history, margin=self.margin, own_guard=_OWN_GUARD, counts=counts)
            move = weighing.best(o for o in options if o.source != o.target and o.row in shared.remaining_work)
        return Moves([move] if move else [], soon)

    def _options(self, snapshot: Snapshot) -> Iterator[Option]:
        """Yield for every job that may move the node with the smallest weight, by node, then by job."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        growth = jobs.growth.tolist()
        weight, count = [0.0] * len(nodes), [0] * len(nodes)
        single_node: list[tuple[int, int]] = []
        for row in (jobs.workers > 0).nonzero()[0].tolist():
            assignment = snapshot.assignment_of(row)
            for node, workers in assignment.workers:
                if node != ANYWHERE:
                    weight[node] += _WEIGHT[Growth(growth[row])] * workers
                    count[node] += workers
            if (
                len(assignment.workers) == 1
                and not assignment.ps
                and not assignment.slots
                and assignment.workers[0][0] != ANYWHERE
            ):
                single_node.append((assignment.workers[0][0], row))
        lightest = [
            nsmallest(
                2, nodes.accepting(shape).nonzero()[0].tolist(), key=lambda node: (weight[node], count[node], node)
            )
            for shape in snapshot.shapes.rows
        ]
        moves = jobs.moves.tolist()
        for source, row in sorted(single_node):
            if growth[row] != Growth.CONVERGED or moves[row] >= self.most:
                continue
            own = 0 if self.strict else _WEIGHT[Growth.CONVERGED] * jobs.workers.item(row)
            here = (weight[source] - own, count[source], source)
            others = [(weight[node], count[node], node) for node in lightest[jobs.shape.item(row)] if node != source]
            yield Option(row, source, min([here, *others])[2])


def _strict_move(snapshot: Snapshot, option: Option) -> Move:
    """Return the move of the published rule; its evictor is the first job on the old node that still improves."""
    jobs = snapshot.jobs
    others = [
        row
        for row in (jobs.growth == Growth.PROGRESSING).nonzero()[0].tolist()
        if any(node == option.source for node, _ in snapshot.assignment_of(row).workers)
    ]
    evictor = JobKey(jobs.key.item(others[0])) if others else NO_JOB
    return Move(option.row, Assignment(((option.target, jobs.workers.item(option.row)),)), evictor)
