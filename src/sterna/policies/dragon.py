"""`dragon`: DRAGON's queue. The head waits `patience` seconds before others shrink for it; jobs grow after a quiet
time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sterna.engine.ordering.tiresias_queues import CROSSED
from sterna.rules import NEVER, Bools, Floats, Ints, Snapshot, Target, knob, policy, priority_order

_MANY = 12
"""Queue length from which the front of the queue is started in one vectorised step."""


@policy("dragon", "DRAGON")
@dataclass(frozen=True)
class Dragon:
    """Submit order with gaps filled; a head that waited long shrinks running jobs; quiet lets the oldest grow."""

    preferred_placement: ClassVar[str] = "pack"

    patience: float = knob(30.0, "Seconds after which the job that waits longest may shrink others.")
    quiet: float = knob(60.0, "Seconds without a change after which running jobs grow.")

    def __call__(self, snapshot: Snapshot) -> Target:
        plan = _Pass(snapshot)
        head = plan.serve(self.patience)
        until = NEVER
        if head is not None and head.waited < self.patience - CROSSED:
            until = snapshot.now + self.patience - head.waited
        starves = head is not None and until == NEVER
        if starves or not plan.can_grow:
            return Target(plan.target, until)
        quiet_until = (snapshot.now if plan.changed else snapshot.last_action) + self.quiet
        if snapshot.now >= quiet_until - CROSSED:
            plan.grow()
        else:
            until = min(until, quiet_until)
        return Target(plan.target, until)


class _Head(NamedTuple):
    """The first job in the queue that does not start now."""

    row: int
    waited: float


class _Pass:
    """One pass over the queue: free units and the target so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        self.snapshot = snapshot
        self.target, self.free = _within_bounds(snapshot)
        self.changed = bool((self.target != jobs.workers).any())
        order = priority_order(snapshot)
        self._waiting = order[jobs.workers[order] == 0]
        running = self.target.nonzero()[0]
        self._running: list[int] = running[jobs.first_start[running].argsort(kind="stable")].tolist()
        """Rows of running jobs, oldest first; jobs that start in this pass come last."""

    @property
    def can_grow(self) -> bool:
        jobs = self.snapshot.jobs
        return self.free >= self.snapshot.smallest_need and bool(
            ((self.target > 0) & (self.target < jobs.maximum)).any()
        )

    def serve(self, patience: float) -> _Head | None:
        """Start jobs in order. Once the head has waited `patience` seconds, other jobs shrink for it; if it still does
        not fit, no job behind it starts. Where shrinking has a price, they do: few jobs shrink then, and the devices
        would idle until enough jobs have ended."""
        jobs, snapshot = self.snapshot.jobs, self.snapshot
        least = snapshot.cost(jobs.minimum)
        head: _Head | None = None
        waits = self._waiting_times()
        first = self._start_front(waits < patience - CROSSED) if len(waits) >= _MANY else 0
        for row, waited in zip(self._waiting[first:].tolist(), waits[first:].tolist(), strict=True):
            if head is None and waited >= patience - CROSSED:
                if self._free_up(least.item(row)):
                    self._start(row, jobs.minimum.item(row), least.item(row))
                    continue
                head = _Head(row, waited)
                if snapshot.changes_are_free:
                    return head
            elif least.item(row) <= self.free:
                self._start_near_request(row)
            elif head is None:
                head = _Head(row, waited)
            if head is not None and self.free < snapshot.smallest_need:
                break
        return head

    def _waiting_times(self) -> Floats:
        waited: Floats = self.snapshot.now - self.snapshot.jobs.waiting_since[self._waiting]
        return waited

    def _start_front(self, is_patient: Bools) -> int:
        """Start jobs at the front in one step, up to the first that is out of patience or does not fit at its request;
        return their number."""
        jobs, snapshot = self.snapshot.jobs, self.snapshot
        rows = self._waiting if is_patient.all() else self._waiting[: int(is_patient.argmin())]
        workers = np.maximum(jobs.minimum[rows], np.minimum(jobs.request[rows], jobs.maximum[rows]))
        total = (snapshot.base[rows] + workers * snapshot.need[rows]).cumsum()
        count = int(total.searchsorted(self.free, "right"))
        if count:
            self.target[rows[:count]] = workers[:count]
            self.free -= total.item(count - 1)
            self.changed = True
            self._running += rows[:count].tolist()
        return count

    def _start_near_request(self, row: int) -> None:
        jobs, need, base = self.snapshot.jobs, self.snapshot.need.item(row), self.snapshot.base.item(row)
        room = (self.free - base) // need if need else jobs.request.item(row)
        workers = max(jobs.minimum.item(row), min(jobs.request.item(row), jobs.maximum.item(row), room))
        self._start(row, workers, base + workers * need)

    def _start(self, row: int, workers: int, cost: int) -> None:
        self.target[row] = workers
        self.free -= cost
        self.changed = True
        self._running.append(row)

    def _free_up(self, cost: int) -> bool:
        """Shrink the oldest jobs towards their minimum until `cost` units are free; none if that is not enough."""
        if cost <= self.free:
            return True
        jobs, need = self.snapshot.jobs, self.snapshot.need
        spare = np.maximum(self.target[self._running] - jobs.minimum[self._running], 0)
        if self.free + int(spare.dot(need[self._running])) < cost:
            return False
        for row, most in zip(self._running, spare.tolist(), strict=True):
            if self.free >= cost:
                break
            if most and need[row]:
                given = min(most, -(-(cost - self.free) // need.item(row)))
                self.target[row] -= given
                self.free += given * need.item(row)
        return True

    def grow(self) -> None:
        """Grow running jobs, oldest first, each up to its maximum."""
        jobs, need = self.snapshot.jobs, self.snapshot.need
        for row in self._running:
            room = self.free // need.item(row) if need[row] else jobs.maximum.item(row)
            more = min(jobs.maximum.item(row) - self.target.item(row), room)
            if more > 0:
                self.target[row] += more
                self.free -= more * need.item(row)
            if self.free < self.snapshot.smallest_need:
                return


def _within_bounds(snapshot: Snapshot) -> tuple[Ints, int]:
    """Return the workers of running jobs within their bounds, and the units that are free then.

    Bounds may have changed and workers may be lost: a job above its maximum shrinks; jobs below their minimum grow to
    it, oldest first, or stop.
    """
    jobs, need, base = snapshot.jobs, snapshot.need, snapshot.base
    most = np.where(jobs.maximum < jobs.minimum, 0, jobs.maximum)  # the cluster cannot hold it any more
    if not ((jobs.workers > 0) & ((jobs.workers < jobs.minimum) | (jobs.workers > most))).any():
        return jobs.workers.copy(), snapshot.free_units
    target = np.minimum(jobs.workers, most)
    gone = (jobs.workers > 0) & (target == 0)
    free = snapshot.free_units + int(((jobs.workers - target) * need).sum()) + int(base[gone].sum())
    short = ((target > 0) & (target < jobs.minimum)).nonzero()[0]
    for row in short[jobs.first_start[short].argsort(kind="stable")].tolist():
        lacking = (jobs.minimum.item(row) - target.item(row)) * need.item(row)
        if lacking <= free:
            target[row] = jobs.minimum[row]
            free -= lacking
        else:
            free += target.item(row) * need.item(row) + base.item(row)
            target[row] = 0
    return target, free
