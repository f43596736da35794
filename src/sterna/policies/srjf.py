"""`srjf`: shortest remaining job first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sterna.engine.ordering.srjf_order import KEYS, by_length, shortest_served
from sterna.engine.registry import Target, knob, policy
from sterna.model.snapshot import Snapshot


@policy("srjf", "SRJF")
@dataclass(frozen=True)
class Srjf:
    """Least remaining work first, each job at its minimum; longer jobs are stopped for shorter ones."""

    by: str = knob(
        "service", "What is short: work left in one-worker seconds, or time left at the minimum.", choices=KEYS
    )

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.minimum_for_all)
        return Target(shortest_served(snapshot, self.by), order=partial(by_length, snapshot, self.by))
