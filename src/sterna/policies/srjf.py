"""`srjf`: shortest remaining job first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.srjf_order import KEYS, fit_shortest_first, order_by_length
from sterna.rules import Snapshot, Target, knob, policy


@policy("srjf", "SRJF")
@dataclass(frozen=True)
class Srjf:
    """Least remaining work first, each job at its minimum; longer jobs are stopped for shorter ones."""

    by: str = knob(
        "service", "What is short: work left in one-worker seconds, or time left at the minimum.", choices=KEYS
    )

    def __call__(self, snapshot: Snapshot) -> Target:
        order = partial(order_by_length, snapshot, self.by)
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all, order=order)
        chosen, _ = fit_shortest_first(snapshot, self.by)
        target = np.zeros(len(snapshot.jobs), dtype=np.int64)
        target[chosen] = snapshot.jobs.minimum[chosen]
        return Target(target, order=order)
