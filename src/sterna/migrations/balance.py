"""`balance`: moves jobs off overloaded nodes, and converged jobs. container-migration's rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.engine.cpu_sharing.move_gain import MoveEvaluator, Option
from sterna.engine.cpu_sharing.shared_nodes import SharedNodes, build_shared_nodes
from sterna.engine.price import MoveHistory
from sterna.model.growth import Strict
from sterna.rules import Growth, GrowthRule, Moves, ResourceKind, Snapshot, knob, migration


@migration("balance")
@dataclass(frozen=True)
class Balance:
    """Jobs of an overloaded node, and converged ones, move to the node with least before it, if that pays.

    The load of a node is its remaining work in seconds. With `strict` it is container-migration's: the mean of the CPU
    and memory limits of its jobs relative to the node's capacity, and moves are not priced.
    """

    threshold: float = knob(
        0.9, "Standard deviations above the mean load of all nodes from which a node is overloaded."
    )
    most: int = knob(3, "Moves of one job in its life.", least=0)
    interval: float = knob(
        10.0, "Seconds between two moves, so that each is judged after the last one took effect.", least=1.0
    )
    margin: float = knob(3.0, "How many times its price a move must gain, because more jobs will come.", least=0.0)
    growth: bool = knob(True, "Move converged jobs too, on any node.")
    priced: bool = knob(True, "Move only what gains more than it costs.")
    sticky: bool = knob(True, "Do not swap two jobs back until something has changed.")
    strict: bool = knob(False, "Loads, categories and limits as published, without a price.")

    @property
    def growth_rule(self) -> GrowthRule:
        """Growth rule that a backend uses for the categories that this migration reads."""
        return GrowthRule(strict=Strict.CONTAINER_MIGRATION) if self.strict else GrowthRule()

    def __call__(self, snapshot: Snapshot) -> Moves:
        shared = build_shared_nodes(snapshot)
        if shared is None or not shared.remaining_work:
            return Moves()
        history = MoveHistory(snapshot)
        if snapshot.now - history.last_move < self.interval:
            return Moves((), history.last_move + self.interval)
        loads = _limits(snapshot, shared) if self.strict else [shared.load(node) for node in range(len(shared.rows_on))]
        options = self._options(snapshot, shared, loads)
        weighing = MoveEvaluator(
            snapshot,
            shared,
            history if self.sticky else None,
            is_priced=self.priced and not self.strict,
            margin=self.margin if self.priced else 0.0,
        )
        if self.strict:
            allowed = (o for o in options if not history.undoes(o.row, o.target))
            first = next(allowed, None)
            move = None if first is None else weighing.move(first)
        else:
            move = weighing.best(options)
        return Moves([move] if move else [], snapshot.now + self.interval)

    def _options(self, snapshot: Snapshot, shared: SharedNodes, loads: Sequence[float]) -> Iterator[Option]:
        """Yield moves of jobs that may move, to the least loaded node, if its load is below the rest of their own
        node's."""
        open_nodes = snapshot.nodes.is_open.nonzero()[0].tolist()
        if not open_nodes:
            return
        target = min(open_nodes, key=lambda node: (loads[node], node))
        mean, spread = float(np.mean(loads)), float(np.std(loads))
        moves = snapshot.jobs.moves.tolist()
        asks = (snapshot.jobs.growth == Growth.CONVERGED).tolist() if self.growth else [False] * len(moves)
        for source, rows in enumerate(shared.rows_on):
            is_overloaded = loads[source] - mean > self.threshold * spread + 1e-9
            if source == target or not (self.strict or shared.is_contended(source)):
                continue
            for row in rows:
                if moves[row] >= self.most or not (is_overloaded or asks[row]):
                    continue
                own = self._own(snapshot, shared, row, source)
                if loads[target] < loads[source] - own - 1e-9 and snapshot.assignment_of(row).ps == ():
                    yield Option(row, source, target)

    def _own(self, snapshot: Snapshot, shared: SharedNodes, row: int, node: int) -> float:
        """Return the load that a job adds to its node."""
        if self.strict:
            return _limit(snapshot, shared, row, node)
        return shared.remaining_work[row] / shared.cores[node]


def _limits(snapshot: Snapshot, shared: SharedNodes) -> list[float]:
    return [sum(_limit(snapshot, shared, row, node) for row in rows) for node, rows in enumerate(shared.rows_on)]


def _limit(snapshot: Snapshot, shared: SharedNodes, row: int, node: int) -> float:
    """Return the mean of a job's CPU and memory limits relative to the node; CPUs alone if memory is not counted."""
    cpus = shared.core_limits[row] / shared.cores[node]
    memory = snapshot.nodes.capacity.item(ResourceKind.MEMORY, node)
    shape = snapshot.shapes[snapshot.jobs.shape.item(row)]
    if not memory or not shape.memory_bytes:
        return cpus
    return 0.5 * cpus + 0.5 * shared.workers[row] * shape.memory_bytes / memory
