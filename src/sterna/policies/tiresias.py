"""`tiresias`: least attained service, in two queues."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.ordering.tiresias_queues import (
    Queues,
    assign_queues,
    due_returns,
    next_queue_change,
    queue_order,
    serve_queues,
    validate_queue_params,
)
from sterna.rules import Ints, Snapshot, Target, knob, policy


@policy("tiresias", "Tiresias")
@dataclass(frozen=True)
class Tiresias:
    """Jobs that used few device-seconds go first, each at its request; needs to know nothing about them."""

    threshold: float = knob(3600.0, "Device-seconds after which a job leaves the first queue.")
    promote: float = knob(8.0, "A waiting job returns to the first queue after this many times its time run; 0: never.")
    since_promotion: bool = knob(False, "Count run time since the last promotion, as the paper does.")
    gittins: bool = knob(False, "Order each queue by the Gittins index of finished jobs instead of by first start.")

    def __post_init__(self) -> None:
        validate_queue_params(self.threshold, self.promote)

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            promoted = due_returns(snapshot, self.threshold, self.promote, self.since_promotion)
            return Target(snapshot.minimum_for_all, promoted=promoted)
        queues = assign_queues(snapshot, self.threshold, self.promote, self.since_promotion)
        gittins = threshold_of(snapshot, self.threshold) if self.gittins else None
        target = admit(snapshot, queues, gittins)
        until = next_queue_change(snapshot, queues, target, self.threshold, self.promote, self.since_promotion)
        return Target(target, until, queues.promoted, partial(queue_order, snapshot, queues, gittins, True))


def threshold_of(snapshot: Snapshot, threshold: float) -> float | None:
    """Return the threshold of the Gittins index; None until a job has finished, because the index needs finished
    jobs."""
    return threshold if len(snapshot.finished_service) else None


def admit(snapshot: Snapshot, queues: Queues, gittins: float | None, keeps_running: bool = True) -> Ints:
    """Admit jobs queue by queue, each at its request, within its bounds."""
    jobs = snapshot.jobs
    size = jobs.minimum
    if not snapshot.is_rigid:
        size = np.clip(jobs.request, size, np.maximum(jobs.maximum, size))
    return serve_queues(snapshot, queues, size, gittins, keeps_running)
