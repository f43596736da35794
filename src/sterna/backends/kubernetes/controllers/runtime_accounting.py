"""How long a job has run and with how much: what policies count, booked whenever its size changes. Pure.

Counting begins when all of a gang runs for the first time in an attempt and goes on while any worker does. Sums are
part of the job's memory, with the instant up to which they are booked, so that a successor goes on where we stopped.
"""

from __future__ import annotations

from collections.abc import Callable

from sterna.backends.kubernetes.api.job import PodState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.model.cluster import MILLI, ResourceKind


def is_whole(entry: JobEntry) -> bool:
    """Whether everybody who shall be there runs, or has done so."""
    pods = entry.job.pods
    return bool(entry.replicas) and all(
        (pod := pods.get((replica.type, replica.ordinal))) is not None
        and pod.state in (PodState.RUNNING, PodState.SUCCEEDED)
        and not pod.is_deleting
        for replica in entry.replicas
    )


class RuntimeAccounting:
    """Counts for all jobs. What counts is told by `unit`: devices, or CPUs in a cluster that has none."""

    def __init__(self, unit: Callable[[], ResourceKind]) -> None:
        self._unit = unit

    def update(self, entry: JobEntry, now: float) -> None:
        """Begin, go on, or stop counting, by the pods that run now."""
        persisted, workers = entry.job.persisted, entry.running_workers
        if persisted.started_at is None:
            if not is_whole(entry):
                return
            persisted.started_at = persisted.counted_from = now
            if persisted.first_started_at is None:
                persisted.first_started_at = now
            entry.counted_workers = workers
        elif workers != entry.counted_workers:
            self.accrue(entry, now)
            entry.counted_workers = workers
            if persisted.counted_from is None and workers:
                persisted.counted_from = now

    def accrue(self, entry: JobEntry, now: float) -> None:
        """Add what has been used at the present size to what was used in all."""
        persisted = entry.job.persisted
        if persisted.counted_from is None:
            return
        span = max(0.0, now - persisted.counted_from)
        persisted.executed += span
        persisted.attained += span * self.units(entry, entry.counted_workers) / MILLI
        persisted.counted_from = now if entry.running_workers else None

    def stop(self, entry: JobEntry, now: float) -> None:
        """The attempt is over."""
        self.accrue(entry, now)
        persisted = entry.job.persisted
        persisted.started_at = persisted.counted_from = None
        entry.counted_workers = 0

    def suspend(self, entry: JobEntry, now: float) -> None:
        """Count how long its user has it suspended, once it has run."""
        persisted, is_suspended = entry.job.persisted, entry.parsed_job.is_suspended
        if is_suspended and persisted.suspended_at is None and persisted.first_started_at is not None:
            persisted.suspended_at = now
        elif not is_suspended and persisted.suspended_at is not None:
            persisted.suspended_seconds += max(0.0, now - persisted.suspended_at)
            persisted.suspended_at = None

    def units(self, entry: JobEntry, workers: int) -> int:
        """What so many workers hold, in thousandths."""
        shape = entry.shape
        if not workers:
            return 0
        if self._unit() is ResourceKind.DEVICES:
            return workers * shape.devices
        return workers * shape.cpus + shape.ps * shape.ps_cpus
