"""`dragon`: DRAGON's queue. Patience for the head, room made by shrinking, growth when all is quiet. DRAGON-11 to
33."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.engine.queues import CROSSED
from sterna.engine.registry import Target, knob, policy
from sterna.engine.walk import by_priority
from sterna.model.cluster import Ints
from sterna.model.snapshot import NEVER, Snapshot


@policy("dragon", "DRAGON")
@dataclass(frozen=True)
class Dragon:
    """Submit order with gaps filled; a head that waited long shrinks running jobs; quiet lets the oldest grow."""

    patience: float = knob(30.0, "Seconds after which the job that waits longest may shrink others.")
    quiet: float = knob(60.0, "Seconds without a change after which running jobs grow.")

    def __call__(self, snapshot: Snapshot) -> Target:
        plan = _Pass(snapshot)
        starving, until = self._starving(snapshot, plan.waiting)
        blocked = plan.start_starving(starving)
        if not blocked:
            plan.start_others(plan.waiting[len(starving) :])
        if not plan.waiting_starves(starving) and not plan.changed:
            rests_until = snapshot.last_action + self.quiet
            if snapshot.now >= rests_until - CROSSED:
                plan.grow()
            else:
                until = min(until, rests_until)
        return Target(plan.target, until)

    def _starving(self, snapshot: Snapshot, waiting: Ints) -> tuple[Ints, float]:
        """The head of the queue that has lost patience, in order, and when the next job will."""
        waited = snapshot.now - snapshot.jobs.waiting_since[waiting]
        patient = np.flatnonzero(waited < self.patience - CROSSED)
        lost = int(patient[0]) if len(patient) else len(waiting)
        until = snapshot.now + self.patience - float(waited[lost]) if lost < len(waiting) else NEVER
        return waiting[:lost], until


class _Pass:
    """One pass over the queue: what is free, what running jobs could give up, and the target so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        self.snapshot = snapshot
        self.target = jobs.workers.copy()
        self.free = snapshot.free_units
        self.changed = False
        order = by_priority(snapshot)
        self.waiting = order[jobs.workers[order] == 0]
        running = np.flatnonzero(jobs.workers)
        self.running = running[np.argsort(jobs.first_start[running], kind="stable")]

    def start_starving(self, rows: Ints) -> bool:
        """Start these in order at their minimum, shrinking others where needed; true if one could not be helped."""
        jobs = self.snapshot.jobs
        cost = self.snapshot.cost(jobs.minimum)
        for row in rows.tolist():
            if not self._free_up(int(cost[row])):
                return True
            self._start(row, int(jobs.minimum[row]), int(cost[row]))
        return False

    def waiting_starves(self, rows: Ints) -> bool:
        return bool((self.target[rows] == 0).any())

    def start_others(self, rows: Ints) -> None:
        """Start what fits, at the request or as near to it as there is room, never below the minimum."""
        jobs, snapshot = self.snapshot.jobs, self.snapshot
        least = snapshot.cost(jobs.minimum)[rows]
        for row in rows[least <= self.free].tolist():
            need, base = int(snapshot.need[row]), int(snapshot.base[row])
            room = (self.free - base) // need if need else int(jobs.request[row])
            workers = min(int(jobs.request[row]), int(jobs.maximum[row]), room)
            if workers >= jobs.minimum[row]:
                self._start(row, workers, base + workers * need)
            if self.free < snapshot.smallest_need:
                return

    def grow(self) -> None:
        """Oldest first, each as far as its maximum and the room allow."""
        jobs, need = self.snapshot.jobs, self.snapshot.need
        hungry = self.running[self.target[self.running] < jobs.maximum[self.running]]
        for row in hungry.tolist():
            room = self.free // int(need[row]) if need[row] else NEVER
            more = int(min(int(jobs.maximum[row]) - int(self.target[row]), room))
            self.target[row] += more
            self.free -= more * int(need[row])
            if self.free < self.snapshot.smallest_need:
                return

    def _start(self, row: int, workers: int, cost: int) -> None:
        self.target[row] = workers
        self.free -= cost
        self.changed = True

    def _free_up(self, cost: int) -> bool:
        """Shrink the oldest towards their minimum until so much is free; nobody, if all together cannot give it."""
        if cost <= self.free:
            return True
        jobs, need = self.snapshot.jobs, self.snapshot.need
        spare = np.maximum(self.target[self.running] - jobs.minimum[self.running], 0) * need[self.running]
        if self.free + int(spare.sum()) < cost:
            return False
        for row in self.running[spare > 0].tolist():
            missing = -(-(cost - self.free) // int(need[row]))
            given = min(missing, int(self.target[row] - jobs.minimum[row]))
            self.target[row] -= given
            self.free += given * int(need[row])
            if self.free >= cost:
                return True
        return True
