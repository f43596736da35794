"""`elastic-fifo`: Voda's default. The minimum in submit order, then one more worker per job and round."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.rules import Snapshot, Target, distribute_round_robin, fit_minimum_in_order, policy, priority_order


@policy("elastic-fifo", "ElasticFIFO")
@dataclass(frozen=True)
class ElasticFifo:
    """The minimum in submit order, then what is left one worker at a time to all that run, up to their maximum."""

    def __call__(self, snapshot: Snapshot) -> Target:
        target = fit_minimum_in_order(snapshot)
        left = snapshot.units - int(snapshot.cost(target).sum())
        if left >= snapshot.smallest_need:
            order = priority_order(snapshot)
            distribute_round_robin(target, order[target[order] > 0], snapshot, left)
        return Target(target)
