"""The price of a move or an eviction, one for everybody, and the memory that keeps jobs from changing places for ever.

Cost and gain are both in device-seconds, so that they can be compared: what is thrown away and waited for, times the
devices that stand still, against the seconds that all jobs together end sooner. Where jobs hold no devices a worker
counts as one. Nothing is forbidden here because it is dear to one job; that is what the guard of a share is for.
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
    """Devices that a job holds; workers, where they need none."""
    workers = snapshot.jobs.workers.item(row)
    if snapshot.nodes.unit is not ResourceKind.DEVICES:
        return float(workers)
    need = snapshot.need.item(row)
    return workers * need / MILLI if need else float(workers)


def pays(gain: float, price: float, margin: float = 1.0) -> bool:
    """Whether the gain exceeds the price `margin` times over; a gain of nothing never does."""
    return gain > max(margin * price, 0.0)


@dataclass(frozen=True)
class Memory:
    """What is remembered of moves: who may be moved, and where to. Until something changes (a job arrives, ends, or
    grows otherwise) nobody goes back to where it made room for another, nor follows the one that it displaced."""

    snapshot: Snapshot

    @cached_attribute
    def last_move(self) -> float:
        return float(self.snapshot.jobs.moved_at.max(initial=-NEVER))

    @cached_attribute
    def changed(self) -> float:
        """When something last changed."""
        since = self.snapshot.last_event
        return max(since, float(self.snapshot.jobs.growth_since.max(initial=since)))

    def undoes(self, row: int, node: int) -> bool:
        """Whether moving this job there takes back what was decided on the very same grounds."""
        jobs = self.snapshot.jobs
        if jobs.moved_from.item(row) == node and jobs.moved_at.item(row) >= self.changed:
            return True
        for victim in (jobs.evictor == jobs.key.item(row)).nonzero()[0].tolist():
            sits_there = any(seat == node for seat, _ in self.snapshot.assignment_of(victim).workers)
            if sits_there and jobs.moved_at.item(victim) >= self.changed:
                return True
        return False
