"""`tiresias`: least attained service, in two queues. VODA-34 to 37."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.engine.queues import Queues, queues_of
from sterna.engine.registry import Target, knob, policy
from sterna.engine.walk import walk
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot


@policy("tiresias", "Tiresias")
@dataclass(frozen=True)
class Tiresias:
    """Jobs that used few device-seconds go first, each at its request; needs to know nothing about them."""

    threshold: float = knob(3600.0, "Device-seconds after which a job leaves the first queue.")
    promote: float = knob(8.0, "A waiting job returns to the first queue after this many times its time run; 0: never.")
    gittins: bool = knob(False, "Order each queue by the Gittins index of finished jobs instead of by first start.")

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            return Target(snapshot.jobs.minimum)
        queues = queues_of(snapshot, self.threshold, self.promote, self.gittins)
        return Target(admit(snapshot, queues), queues.until, queues.promoted)


def admit(snapshot: Snapshot, queues: Queues) -> Ints:
    """The request for each job that fits, queue by queue."""
    jobs = snapshot.jobs
    size = np.minimum(jobs.request, np.maximum(jobs.maximum, jobs.minimum)) if jobs.barred is not None else jobs.request
    order = queues.order if jobs.barred is None else queues.order[~jobs.barred[queues.order]]
    chosen = order[walk(snapshot.cost(size)[order], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = size[chosen]
    return target
