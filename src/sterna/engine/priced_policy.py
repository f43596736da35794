"""The price of a policy's stops, shrinks and growth: asked by the engine, under every policy.

The engine calls the policy on the jobs that may change and on the capacity that is left beside all others. A running
job is left out, with its workers, if a change could not pay whatever the challenger is: it cannot save, it is about to
end, or changes have already cost it its share of lost service. The engine then reviews the target:

    a stop or shrink    pays if the waiting time that it saves, for the devices that other jobs take over, exceeds
                        `PAYBACK` times what it costs the victim: devices x (unsaved work + restart)
    growth              pays if the remaining time that it saves exceeds `PAYBACK` times the time of a resize

What earlier changes have cost a job counts again in each of these: a first change is cheap, and a job that was changed
often stays as it is. What does not pay is left out of the next call. What is unknown counts against a change: a job of
unknown length is expected to run on for as long as it has run. A higher priority outranks the price, but not the
ability to save.

Where changes are free the policy's own target is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sterna.engine.price import ChangeCosts
from sterna.engine.registry import Policy, Target
from sterna.model.cluster import Bools, Ints
from sterna.model.snapshot import NEVER, Jobs, SelectedJobs, Snapshot
from sterna.model.speedup import Floats

LOSS_SHARE = 0.06
"""Largest share of its service, past and expected, that a job may lose to stops and resizes."""

PAYBACK = 4.0
"""Least ratio of what a change gains to what it and all earlier changes of the job cost."""

_MAX_REVIEWS = 4
"""Calls of the policy after which all running jobs keep their workers; most rounds need one or two."""

_SOONEST = 1.0
"""Least seconds until the next decision for a job of unknown length."""

_LEAST = 1e-9
"""Lower bound of divisors."""


@dataclass(frozen=True)
class PricedPolicy:
    """A policy whose target changes running jobs only where that pays."""

    policy: Policy

    def __call__(self, snapshot: Snapshot) -> Target:
        if snapshot.changes_are_free or snapshot.free_units < 0:  # after a loss of capacity some job has to go
            return self.policy(snapshot)
        return _Walk(snapshot, self.policy).run()


class _Walk:
    """Calls of one policy on one snapshot, until all changes of its target pay."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._costs = ChangeCosts(snapshot)
        jobs = snapshot.jobs
        self._is_running = jobs.workers > 0
        self._is_waiting = ~self._is_running if jobs.barred is None else ~self._is_running & ~jobs.barred
        self._may_stay = self._is_running & (jobs.minimum <= jobs.workers) & (jobs.workers <= jobs.maximum)
        """Running jobs within their bounds; all others have to change."""
        self._seconds_left = _seconds_left(snapshot)

    def run(self) -> Target:
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        delayed = self._is_waiting & (jobs.not_before > snapshot.now)
        limited = self._is_waiting & (jobs.may_preempt == 0) & ~delayed
        kept = self._serve_from_free(delayed, snapshot.free_units)
        free = snapshot.free_units - int(snapshot.cost(kept).sum())
        target = self._serve_all(~delayed & ~limited, free)
        until = min(target.until, self._next_affordable_change(target.workers))
        if delayed.any():
            until = min(until, float(jobs.not_before[delayed].min()))
        if limited.any():
            free -= int((snapshot.cost(target.workers) - snapshot.cost(jobs.workers)).sum())
            target = target._replace(workers=target.workers + self._serve_from_free(limited, free))
        return target._replace(until=until)

    def _next_affordable_change(self, workers: Ints) -> float:
        """Return when a job of unknown length will have run long enough for a change to pay, if a job waits for that.

        No event tells of that time; later ones are twice as far away each.
        """
        jobs, costs = self._snapshot.jobs, self._costs
        open_ended = self._may_stay & (costs.can_stop | costs.can_resize) & np.isnan(jobs.remaining)
        if not open_ended.any() or not (self._is_waiting & (workers == 0)).any():
            return NEVER
        least = np.minimum(costs.stop_seconds, costs.resize_seconds) + jobs.spent / np.maximum(costs.devices, _LEAST)
        needed = np.maximum(PAYBACK * least, least / (2 * LOSS_SHARE)) - jobs.executed
        seconds = np.where(needed > 0, needed, jobs.executed)[open_ended].min()
        return self._snapshot.now + max(float(seconds), _SOONEST)

    def _serve_from_free(self, rows: Bools, free: int) -> Ints:
        """Return the workers of these waiting jobs if only `free` units are there for them."""
        workers = np.zeros(len(rows), dtype=np.int64)
        if rows.any() and free > 0:
            chosen = rows.nonzero()[0]
            workers[chosen] = self._policy(self._offer(chosen, free)).workers
        return workers

    def _serve_all(self, rows: Bools, free: int) -> Target:
        """Return the target for `rows`, with all changes that do not pay taken back."""
        pinned, capped = self._pinned_rows(rows), np.zeros(len(rows), dtype=np.bool_)
        for review in range(_MAX_REVIEWS):
            target = self._call(rows & ~pinned, free, pinned, capped)
            victims, growth = self._find_unpaid(target.workers, is_last=review + 2 >= _MAX_REVIEWS)
            if not victims.any() and not growth.any():
                break
            pinned, capped = pinned | victims, capped | growth
        else:
            target = self._call(rows & ~self._may_stay, free, self._may_stay, capped)
        return self._evict_unsaved(target, rows, free, capped)

    def _call(self, rows: Bools, free: int, pinned: Bools, capped: Bools) -> Target:
        """Return the policy's target for `rows`; the pinned jobs keep their workers, the capped ones do not grow."""
        jobs = self._snapshot.jobs
        if rows.all() and not capped.any() and free == self._snapshot.free_units:
            return self._policy(self._snapshot)
        chosen = rows.nonzero()[0]
        target = self._policy(self._offer(chosen, free, capped if capped.any() else None))
        workers = np.where(pinned, jobs.workers, 0)
        workers[chosen] = target.workers
        promoted = None
        if target.promoted is not None:
            promoted = np.zeros(len(rows), dtype=np.bool_)
            promoted[chosen] = target.promoted
        order = None if target.order is None else partial(_whole_order, target.order, chosen, rows)
        return target._replace(workers=workers, promoted=promoted, order=order)

    def _offer(self, chosen: Ints, free: int, capped: Bools | None = None) -> Snapshot:
        """Return the snapshot of these rows with `free` free units."""
        snapshot, jobs = self._snapshot, self._snapshot.jobs
        columns = {} if capped is None else {"maximum": np.where(capped, jobs.workers, jobs.maximum)}
        known = {"has_priorities": jobs.has_priorities and bool(jobs.priority[chosen].any())}
        barred = None if jobs.barred is None else jobs.barred[chosen]
        table = Jobs(
            SelectedJobs(jobs, chosen, columns), barred if barred is not None and barred.any() else None, known
        )
        return replace(
            snapshot,
            jobs=table,
            free_units=free,
            held_units=int(snapshot.cost(jobs.workers)[chosen].sum()),
            least_units=int(snapshot.cost(jobs.minimum)[chosen].sum()),
            is_rigid=snapshot.is_rigid or _is_rigid(table),
        )

    # Which jobs may change.

    def _pinned_rows(self, rows: Bools) -> Bools:
        """Return the running jobs whose change could not pay, whichever job it is for."""
        costs, jobs, left = self._costs, self._snapshot.jobs, self._seconds_left
        least = np.minimum(costs.stop_seconds, costs.resize_seconds)
        service = costs.devices * (jobs.executed + left)
        is_dear = (jobs.spent + costs.devices * least > LOSS_SHARE * service) & (least > 0)
        is_ending = (left <= PAYBACK * least) & (least > 0)
        is_outranked = self._outranked_rows(rows)
        fixed = ~(costs.can_stop | costs.can_resize) | ((is_dear | is_ending) & ~is_outranked)
        return self._may_stay & fixed

    def _outranked_rows(self, rows: Bools) -> Bools:
        """Return the jobs of lower priority than some waiting job."""
        jobs = self._snapshot.jobs
        waiting = self._is_waiting & rows
        if not jobs.has_priorities or not waiting.any():
            return np.zeros(len(rows), dtype=np.bool_)
        outranked: Bools = jobs.priority < jobs.priority[waiting].max()
        return outranked

    def _evict_unsaved(self, target: Target, rows: Bools, free: int, capped: Bools) -> Target:
        """Return a target that stops jobs which cannot save, if the administrator allows that and a job of higher
        priority is left waiting otherwise."""
        snapshot, jobs = self._snapshot, self._snapshot.jobs
        left_out = self._is_waiting & rows & (target.workers == 0)
        unsaved = self._may_stay & ~self._costs.can_stop
        if not snapshot.evicts_unsaved or not jobs.has_priorities or not left_out.any() or not unsaved.any():
            return target
        unsaved &= jobs.priority < jobs.priority[left_out].max()
        if not unsaved.any():
            return target
        pinned = self._pinned_rows(rows) & ~unsaved
        evicting = self._call(rows & ~pinned, free, pinned, capped)
        is_served = (evicting.workers > 0) & left_out & (jobs.priority > jobs.priority[unsaved].min())
        return evicting if is_served.any() else target

    # Which changes pay.

    def _find_unpaid(self, workers: Ints, is_last: bool) -> tuple[Bools, Bools]:
        """Return the victims and the growing jobs of a target whose changes do not pay.

        Unless this is the last review, only the half of the growing jobs that gains least is returned: what it does not
        get may make the growth of the others pay.
        """
        before, costs = self._snapshot.jobs.workers, self._costs
        grows = self._may_stay & (workers > before)
        shrinks = self._may_stay & (workers < before)
        none = np.zeros(len(before), dtype=np.bool_)
        if not grows.any() and not shrinks.any():
            return none, none
        gain = self._growth_gain(workers, grows)
        cost_seconds = costs.resize_seconds + self._snapshot.jobs.spent / np.maximum(costs.devices, _LEAST)
        refused = grows & ((gain <= PAYBACK * cost_seconds) | ~costs.can_resize)
        victims = self._unpaid_victims(workers, shrinks, grows & ~refused, gain) if shrinks.any() else none
        count = int(refused.sum())
        if count > 1 and not is_last:
            ratio = np.where(refused, gain / np.maximum(cost_seconds, _LEAST), np.inf)
            worst = np.lexsort((np.arange(len(ratio)), ratio))[: (count + 1) // 2]
            refused = none.copy()
            refused[worst] = True
        return victims, refused

    def _growth_gain(self, workers: Ints, grows: Bools) -> Floats:
        """Return the seconds by which growth shortens the remaining time of each job."""
        jobs, curves = self._snapshot.jobs, self._snapshot.curves
        gain = np.zeros(len(workers))
        rows = grows.nonzero()[0]
        if len(rows):
            ratio = curves.speed(jobs.curve[rows], jobs.workers[rows]) / curves.speed(jobs.curve[rows], workers[rows])
            gain[rows] = self._seconds_left[rows] * (1.0 - ratio)
        return gain

    def _unpaid_victims(self, workers: Ints, shrinks: Bools, grows: Bools, gain: Floats) -> Bools:
        """Return the jobs that would stop or shrink for less than that costs them.

        A victim's devices are worth the time that the jobs which take them over would otherwise wait: until the victim
        ends, for a job that starts; for growth, what it gains. The cheapest victims count first; one whose devices are
        left over is not needed.
        """
        snapshot, jobs, costs = self._snapshot, self._snapshot.jobs, self._costs
        change = snapshot.cost(workers) - snapshot.cost(jobs.workers)
        starts = (jobs.workers == 0) & (workers > 0)
        wanted = int(change[starts].sum()) - snapshot.free_units
        added = int(change[grows].sum())
        growth_gain = float((gain * costs.devices * change / np.maximum(snapshot.cost(jobs.workers), 1))[grows].sum())
        per_unit = growth_gain / added if added else 0.0
        rows = shrinks.nonzero()[0]
        seconds = np.where(workers[rows] > 0, costs.resize_seconds[rows], costs.stop_seconds[rows])
        price = costs.devices[rows] * seconds
        cost = price + jobs.spent[rows]
        freed = -change[rows]
        outranked = self._outranked_rows(np.ones(len(workers), dtype=np.bool_))
        unit = np.maximum(snapshot.cost(jobs.workers)[rows], 1) / np.maximum(costs.devices[rows], _LEAST)
        refused = np.zeros(len(workers), dtype=np.bool_)
        for place in np.lexsort((rows, price / np.maximum(freed, 1))).tolist():
            row, units = rows.item(place), freed.item(place)
            for_starts = min(max(wanted, 0), units)
            for_growth = min(units - for_starts, max(added + min(wanted, 0), 0))
            wanted -= units
            worth = for_starts * self._seconds_left.item(row) / unit.item(place) + for_growth * per_unit
            can = costs.can_stop if not workers[row] else costs.can_resize
            if not can[row] or (worth <= PAYBACK * cost.item(place) and not outranked[row] and price.item(place) > 0):
                refused[row] = True
        return refused


def _seconds_left(snapshot: Snapshot) -> Floats:
    """Return the remaining time of each running job at its present size; of unknown length: as long as it has run."""
    jobs = snapshot.jobs
    speed = np.maximum(snapshot.curves.speed(jobs.curve, np.maximum(jobs.workers, 1)), _LEAST)
    return np.where(np.isnan(jobs.remaining), jobs.executed, jobs.remaining / speed)


def _is_rigid(jobs: Jobs) -> bool:
    is_fixed = (jobs.minimum == jobs.maximum) & ((jobs.workers == 0) | (jobs.workers == jobs.minimum))
    return bool(is_fixed.all())


def _whole_order(order: Callable[[], Ints], chosen: Ints, rows: Bools) -> Ints:
    """Return all rows in the order of serving: those that were left out first."""
    return np.concatenate([(~rows).nonzero()[0], chosen[order()]])
