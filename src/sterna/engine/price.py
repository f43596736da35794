"""The price of a move or an eviction, shared by all rules, and the move history that prevents oscillation.

Cost and gain are both in device-seconds: lost work plus restart time, times the idle devices, against the time that all
jobs together save. A worker without devices counts as one device. A move that is expensive for one job is not ruled out
here; the guard of a CPU share rule limits the loss of a single job.
"""

from __future__ import annotations

from dataclasses import dataclass

from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import MILLI, ResourceKind
from sterna.model.snapshot import NEVER, Snapshot


def cost(snapshot: Snapshot, row: int) -> float:
    """Devices x (work since the last checkpoint + restart), in device-seconds."""
    return devices(snapshot, row) * (snapshot.jobs.unsaved.item(row) + snapshot.restart_seconds)


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
