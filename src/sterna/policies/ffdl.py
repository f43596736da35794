"""`ffdl`: FfDL's optimiser. Maximises total speed-up among the jobs that came first."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.rules import Snapshot, Target, fit_minimum_in_order, policy, priority_order, spend_by_gain


@policy("ffdl", "FfDLOptimizer")
@dataclass(frozen=True)
class Ffdl:
    """The minimum in submit order, then each device where it adds most speed-up; exact where workers are equally
    large."""

    def __call__(self, snapshot: Snapshot) -> Target:
        target = fit_minimum_in_order(snapshot)
        left = snapshot.units - int(snapshot.cost(target).sum())
        if left >= snapshot.smallest_need:
            order = priority_order(snapshot)
            spend_by_gain(target, order[target[order] > 0], snapshot, left)
        return Target(target)
