"""`elastic-srjf`: shortest remaining job first, then the rest one worker at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.srjf_order import KEYS, fit_shortest_first, order_by_length, sort_by_length
from sterna.rules import Snapshot, Target, distribute_round_robin, knob, policy


@policy("elastic-srjf", "ElasticSRJF")
@dataclass(frozen=True)
class ElasticSrjf:
    """The minimum for the shortest first, then what is left one worker at a time, shortest first, up to each
    maximum."""

    by: str = knob(
        "service", "What is short: work left in one-worker seconds, or time left at the minimum.", choices=KEYS
    )

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.jobs.minimum, order=partial(order_by_length, snapshot, self.by))
        chosen, left = fit_shortest_first(snapshot, self.by)
        target = np.zeros(len(snapshot.jobs), dtype=np.int64)
        target[chosen] = snapshot.jobs.minimum[chosen]
        distribute_round_robin(target, sort_by_length(snapshot, chosen, self.by), snapshot, left)
        return Target(target, order=partial(order_by_length, snapshot, self.by))
