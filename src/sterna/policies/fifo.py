"""`fifo`: first come, first served."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.rules import Ints, Snapshot, Target, first_fit, fit_minimum_in_order, knob, policy, priority_order


@policy("fifo", "FIFO")
@dataclass(frozen=True)
class Fifo:
    """Jobs in submit order, each at its minimum; later jobs fill the gaps that earlier ones cannot use."""

    preempt: bool = knob(True, "Stop a younger job that fills a gap as soon as an older one fits.")
    backfill: bool = knob(True, "Let later jobs pass one that does not fit.")

    def __call__(self, snapshot: Snapshot) -> Target:
        if self.preempt and self.backfill:
            return Target(fit_minimum_in_order(snapshot))
        jobs = snapshot.jobs
        chosen = self._chosen_rows(snapshot)
        target = np.zeros(len(jobs), dtype=np.int64) if self.preempt else jobs.workers.copy()
        target[chosen] = jobs.minimum[chosen]
        return Target(target, is_strict=not self.backfill)

    def _chosen_rows(self, snapshot: Snapshot) -> Ints:
        """Return the rows that get their minimum; without pre-emption, only waiting ones."""
        jobs = snapshot.jobs
        free = snapshot.units if self.preempt else snapshot.free_units
        order = priority_order(snapshot)
        if not self.preempt:
            if free < snapshot.smallest_need:
                return order[:0]
            order = order[jobs.workers[order] == 0]
        return order[first_fit(snapshot.minimum_cost[order], free, snapshot.smallest_need, skip=self.backfill)]
