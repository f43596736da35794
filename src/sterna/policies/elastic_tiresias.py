"""`elastic-tiresias`: Tiresias, then the rest where it adds most speed; a long queue shrinks long-running jobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from sterna.engine.ordering.marginal_gain import affordable_growth, steps_above
from sterna.engine.ordering.tiresias_queues import (
    Queues,
    assign_queues,
    due_returns,
    next_queue_change,
    queue_order,
    validate_queue_params,
)
from sterna.policies.tiresias import admit, threshold_of
from sterna.rules import Bools, Floats, Ints, Snapshot, Target, knob, policy

_DIGITS = 9
"""Decimal digits of a gain that are compared; curves are concave only up to rounding."""


@policy("elastic-tiresias", "ElasticTiresias")
@dataclass(frozen=True)
class ElasticTiresias:
    """Tiresias at the request, then each device where it adds most; a long queue shrinks those that used much
    already."""

    threshold: float = knob(3600.0, "Device-seconds after which a job leaves the first queue.")
    promote: float = knob(8.0, "A waiting job returns to the first queue after this many times its time run; 0: never.")
    compact: int = knob(10, "With more waiting jobs than this, jobs of the second queue shrink to their minimum.")
    since_promotion: bool = knob(False, "Count run time since the last promotion, as the paper does.")
    gittins: bool = knob(False, "Order each queue by the Gittins index of finished jobs instead of by first start.")

    def __post_init__(self) -> None:
        validate_queue_params(self.threshold, self.promote)

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.all_fit:
            promoted = due_returns(snapshot, self.threshold, self.promote, self.since_promotion)
            return Target(snapshot.jobs.minimum, promoted=promoted)
        jobs = snapshot.jobs
        queues = assign_queues(snapshot, self.threshold, self.promote, self.since_promotion)
        gittins = threshold_of(snapshot, self.threshold) if self.gittins else None
        target = admit(snapshot, queues, gittins, keeps_running=False)
        able = np.ones(len(jobs), dtype=np.bool_) if jobs.barred is None else ~jobs.barred
        if int((able & (target == 0)).sum()) > self.compact:
            low = queues.is_second & (target > 0)
            target[low] = jobs.minimum[low]
        _expand(target, snapshot, queues, able)
        until = next_queue_change(snapshot, queues, target, self.threshold, self.promote, self.since_promotion)
        return Target(target, until, queues.promoted, partial(queue_order, snapshot, queues, gittins, False))


class _Steps(NamedTuple):
    """Every step of every job that adds speed: first the starts, then the growth, each by row and ascending number of
    workers."""

    row: Ints
    size: Ints
    """Units that the step takes."""
    gain: Floats
    """Speed-up per worker."""
    is_growth: Bools
    """The step is growth, not a start."""
    is_new: Bools
    """The job has fewer workers now."""

    def best(self, count: int) -> _Steps:
        """Return the `count` steps with the largest gain, and all that tie with the last of them."""
        bound = np.partition(self.gain, len(self.gain) - count)[len(self.gain) - count]
        keep = self.gain >= bound
        return self.select(keep)

    def select(self, keep: Bools) -> _Steps:
        return _Steps(self.row[keep], self.size[keep], self.gain[keep], self.is_growth[keep], self.is_new[keep])


def _expand(target: Ints, snapshot: Snapshot, queues: Queues, able: Bools) -> None:
    """Give devices to the step with the largest gain, one after the other: one more worker, or the whole minimum of a
    job that does not run. Modifies `target`."""
    free, smallest = snapshot.units - int(snapshot.cost(target).sum()), snapshot.smallest_need
    steps = _steps(target, snapshot, able, free)
    enough = free // smallest + 1 if smallest else len(steps.row)
    if enough < len(steps.row):  # the best few usually use up all units
        trial = target.copy()
        if _take_steps(trial, snapshot, queues, steps.best(enough), free) < smallest:
            target[:] = trial
            return
    _take_steps(target, snapshot, queues, steps, free)


def _take_steps(target: Ints, snapshot: Snapshot, queues: Queues, steps: _Steps, free: int) -> int:
    """Take these steps, best first, as long as they fit; modify `target` and return the units left."""
    row, size = steps.row, steps.size
    turn = (4 * queues.is_second[row] + 2 * steps.is_growth + steps.is_new).astype(np.int8)
    order = np.lexsort((turn, -steps.gain))  # stable: the row breaks ties
    row, size = row[order], size[order]
    while len(row) and free > 0:
        total = size.cumsum()
        cut = int(total.searchsorted(free, side="right"))
        enters = target[row[:cut]] == 0
        np.add.at(target, row[:cut], 1)
        entered = np.unique(row[:cut][enters])
        target[entered] += snapshot.jobs.minimum[entered] - 1
        free -= int(total[cut - 1]) if cut else 0
        if cut == len(row):
            break
        barred = np.unique(row[cut:][(size[cut:] > free) & (target[row[cut:]] == 0)])
        keep = (size[cut:] <= free) & ~np.isin(row[cut:], barred)
        row, size = row[cut:][keep], size[cut:][keep]
    return free


def _steps(target: Ints, snapshot: Snapshot, able: Bools, free: int) -> _Steps:
    jobs, need = snapshot.jobs, snapshot.need
    rows = np.flatnonzero(
        able & (target < jobs.maximum) & (np.where(target > 0, need, snapshot.cost(jobs.minimum)) <= free)
    )
    held = target[rows]
    entry = rows[held == 0]
    base = np.where(held > 0, held, jobs.minimum[rows])
    reach = affordable_growth(jobs.maximum[rows] - base, need[rows], free)
    rank, count, gain = steps_above(snapshot, rows, base, reach)
    speed = snapshot.curves.speed(jobs.curve[entry], jobs.minimum[entry])
    entering = (speed / np.maximum(jobs.minimum[entry], 1)).round(_DIGITS)
    most = np.full(len(rows), np.inf)
    most[held == 0] = entering
    gain = np.minimum(gain.round(_DIGITS), most[rank])  # a job starts before it grows
    row = np.concatenate([entry, rows[rank]])
    size = np.concatenate([snapshot.cost(jobs.minimum)[entry], need[rows[rank]]])
    value = np.concatenate([entering, gain])
    is_growth = np.arange(len(row)) >= len(entry)
    after = np.concatenate([jobs.minimum[entry], count + 1])
    return _Steps(row, size, value, is_growth, after > jobs.workers[row]).select(value > 0)
