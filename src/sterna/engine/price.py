"""The price of a stop, a resize or a move, shared by all rules, and the move history that prevents oscillation.

Cost and gain are both in device-seconds: lost work plus restart time, times the idle devices, against the time that all
jobs together save. A worker without devices counts as one device. A move that is expensive for one job is not ruled out
here; the guard of a CPU share rule limits the loss of a single job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import MILLI, Bools, ResourceKind
from sterna.model.plan import Action, ActionKind
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import Floats


@dataclass(frozen=True)
class ChangeCosts:
    """Cost of changing each job of a snapshot, as columns."""

    snapshot: Snapshot

    @cached_attribute
    def devices(self) -> Floats:
        """Devices that each job holds, or its number of workers if they need none."""
        workers = self.snapshot.jobs.workers
        need = self.snapshot.need / MILLI
        by_worker: Floats = np.where(need > 0, need, 1.0) if self._counts_devices else np.ones(len(need))
        return workers * by_worker

    @property
    def _counts_devices(self) -> bool:
        return self.snapshot.nodes.unit is ResourceKind.DEVICES

    @cached_attribute
    def stop_seconds(self) -> Floats:
        """Seconds that a stop costs each job: work that it loses and the time to restart."""
        jobs = self.snapshot.jobs
        restart = np.where(np.isnan(jobs.restart_seconds), self.snapshot.restart_seconds, jobs.restart_seconds)
        return jobs.unsaved + restart

    @cached_attribute
    def resize_seconds(self) -> Floats:
        """Seconds that a resize costs each job."""
        in_place = self.snapshot.jobs.resize_seconds
        return np.where(np.isnan(in_place), self.stop_seconds, in_place)

    @cached_attribute
    def move_seconds(self) -> Floats:
        """Seconds that a move costs each job."""
        in_place = self.snapshot.jobs.move_seconds
        return np.where(np.isnan(in_place), self.stop_seconds, in_place)

    @cached_attribute
    def can_stop(self) -> Bools:
        """The job has shown that it can save."""
        return self.snapshot.jobs.can_save > 0

    @cached_attribute
    def can_resize(self) -> Bools:
        """A resize loses no work: the job can save, or resizes in place."""
        return self.can_stop | ~np.isnan(self.snapshot.jobs.resize_seconds)

    @cached_attribute
    def can_move(self) -> Bools:
        """A move loses no work: the job can save, or moves in place."""
        return self.can_stop | ~np.isnan(self.snapshot.jobs.move_seconds)


def cost(snapshot: Snapshot, row: int) -> float:
    """Devices x (work since the last checkpoint + restart), in device-seconds: the cost of a move or an eviction."""
    jobs = snapshot.jobs
    seconds = jobs.move_seconds.item(row)
    if seconds != seconds:
        restart = jobs.restart_seconds.item(row)
        seconds = jobs.unsaved.item(row) + (snapshot.restart_seconds if restart != restart else restart)
    return devices(snapshot, row) * seconds


def devices(snapshot: Snapshot, row: int) -> float:
    """Number of devices that a job holds, or its number of workers if they need none."""
    workers = snapshot.jobs.workers.item(row)
    if snapshot.nodes.unit is not ResourceKind.DEVICES:
        return float(workers)
    need = snapshot.need.item(row)
    return workers * need / MILLI if need else float(workers)


def pays(gain: float, price: float, margin: float = 1.0) -> bool:
    """True if the gain exceeds `margin` times the price; a gain of zero or less never pays."""
    return gain > max(margin * price, 0.0)


def put_prices_on(snapshot: Snapshot, actions: Sequence[Action]) -> list[Action]:
    """Return the actions with the price of every stop, resize and move of a running job."""
    if snapshot.changes_are_free or not any(action.before.workers for action in actions):
        return list(actions)
    costs = ChangeCosts(snapshot)
    seconds = {
        ActionKind.STOP: costs.stop_seconds,
        ActionKind.SHRINK: costs.resize_seconds,
        ActionKind.GROW: costs.resize_seconds,
        ActionKind.MIGRATE: costs.move_seconds,
    }
    return [
        action._replace(price=costs.devices.item(action.row) * seconds[action.kind].item(action.row))
        if action.kind in seconds
        else action
        for action in actions
    ]


@dataclass(frozen=True)
class MoveHistory:
    """Past moves of the jobs in a snapshot, used to reject moves that undo an earlier one.

    Until the next change (a job arrives, ends, or changes its growth category) a job neither returns to the node that
    it left for another job nor follows a job that it displaced.
    """

    snapshot: Snapshot

    @cached_attribute
    def last_move(self) -> float:
        return float(self.snapshot.jobs.moved_at.max(initial=-NEVER))

    @cached_attribute
    def changed(self) -> float:
        """Time of the last change, in seconds."""
        since = self.snapshot.last_event
        return max(since, float(self.snapshot.jobs.growth_since.max(initial=since)))

    def undoes(self, row: int, node: int) -> bool:
        """True if moving the job to `node` would revert a move that was decided since the last change."""
        jobs = self.snapshot.jobs
        if jobs.moved_from.item(row) == node and jobs.moved_at.item(row) >= self.changed:
            return True
        for victim in (jobs.evictor == jobs.key.item(row)).nonzero()[0].tolist():
            is_there = any(other == node for other, _ in self.snapshot.assignment_of(victim).workers)
            if is_there and jobs.moved_at.item(victim) >= self.changed:
                return True
        return False
