"""`tiresias`: least attained service, in two queues or, in the order of the public simulator, in three."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sterna.engine.kernels.bin_packing import first_fit
from sterna.engine.ordering.queue_entry import entry_order, next_demotion
from sterna.engine.ordering.tiresias_queues import (
    Queues,
    assign_queues,
    due_returns,
    next_queue_change,
    queue_order,
    serve_queues,
    validate_queue_params,
)
from sterna.errors import UserError
from sterna.rules import Ints, Snapshot, Target, knob, policy

ORDERS = ("start", "entry")


@policy("tiresias", "Tiresias")
@dataclass(frozen=True)
class Tiresias:
    """Jobs that used few device-seconds go first, each at its request; needs to know nothing about them."""

    threshold: float = knob(3600.0, "Device-seconds after which a job leaves the first queue.")
    promote: float = knob(8.0, "A waiting job returns to the first queue after this many times its time run; 0: never.")
    since_promotion: bool = knob(False, "Count run time since the last promotion, as the paper does.")
    gittins: bool = knob(False, "Order each queue by the Gittins index of finished jobs instead of by first start.")

    order: str = knob(
        "start", "Order inside a queue: by first start, or by entry, as in the public simulator.", choices=ORDERS
    )
    second: float = knob(0.0, "Device-seconds after which a job leaves the second queue; 0: there is no third.")

    def __post_init__(self) -> None:
        if self.order == "entry":
            _validate_entry_params(self)
        else:
            validate_queue_params(self.threshold, self.promote)
            if self.second:
                raise UserError(f"second={self.second:g} makes a third queue, which needs order=entry: add it.")

    def __call__(self, snapshot: Snapshot) -> Target:
        if self.order == "entry":
            return _serve_by_entry(snapshot, (self.threshold, self.second) if self.second else (self.threshold,))
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
    return serve_queues(snapshot, queues, _requested_size(snapshot), gittins, keeps_running)


def _requested_size(snapshot: Snapshot) -> Ints:
    jobs = snapshot.jobs
    if snapshot.is_rigid:
        return jobs.minimum
    return np.clip(jobs.request, jobs.minimum, np.maximum(jobs.maximum, jobs.minimum))


def _validate_entry_params(policy: Tiresias) -> None:
    if policy.promote or policy.gittins or policy.since_promotion:
        raise UserError("order=entry has neither promotion nor the Gittins index: write promote=0 and leave them out.")
    if policy.second and policy.second <= policy.threshold:
        raise UserError(f"second={policy.second:g} must be above threshold={policy.threshold:g}: raise it.")


def _serve_by_entry(snapshot: Snapshot, thresholds: tuple[float, ...]) -> Target:
    if snapshot.all_fit:
        return Target(snapshot.minimum_for_all)
    jobs, size = snapshot.jobs, _requested_size(snapshot)
    order = entry_order(snapshot, thresholds)
    able = order if jobs.barred is None else order[~jobs.barred[order]]
    chosen = able[first_fit(snapshot.cost(size)[able], snapshot.units, snapshot.smallest_need)]
    target = np.zeros(len(jobs), dtype=np.int64)
    target[chosen] = size[chosen]
    return Target(target, next_demotion(snapshot, target, thresholds), order=partial(entry_order, snapshot, thresholds))
