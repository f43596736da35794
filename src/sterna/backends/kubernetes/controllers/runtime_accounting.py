"""Run time and attained service of jobs, accrued whenever the size of a job changes. Pure.

Accrual starts when all of a gang runs for the first time in an attempt, and continues while any worker runs. The sums
and the time up to which they are accrued are persisted, so that the next leader continues.
"""

from __future__ import annotations

from collections.abc import Callable

from sterna.backends.kubernetes.api.job import PodState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.control.restart_policy import ran_well
from sterna.model.cluster import MILLI, ResourceKind


def is_whole(entry: JobEntry) -> bool:
    """Return True if every assigned replica runs or has succeeded."""
    pods = entry.job.pods
    return bool(entry.replicas) and all(
        (pod := pods.get((replica.type, replica.ordinal))) is not None
        and pod.state in (PodState.RUNNING, PodState.SUCCEEDED)
        and not pod.is_deleting
        for replica in entry.replicas
    )


class RuntimeAccounting:
    """Accrues run time of all jobs. `unit` returns the counted resource: devices, or CPUs in a cluster without;
    `restart_seconds` the learned cost of a restart by job key."""

    def __init__(self, unit: Callable[[], ResourceKind], restart_seconds: Callable[[int], float]) -> None:
        self._unit, self._restart_seconds = unit, restart_seconds

    def runs_well(self, entry: JobEntry, now: float) -> bool:
        """Return True if the current attempt has made progress or has run for a while without container restarts."""
        persisted = entry.job.persisted
        is_restarted = any(pod.restarts for pod in entry.job.pods.values())
        ran = 0.0 if persisted.started_at is None or is_restarted else now - persisted.started_at
        has_progressed = persisted.step is not None and persisted.step > persisted.reached_step
        return ran_well(has_progressed, ran, self._restart_seconds(entry.key))

    def update(self, entry: JobEntry, now: float) -> None:
        """Start, continue or stop accruing, by the running pods."""
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
        """Add the time since the last call at the current size."""
        persisted = entry.job.persisted
        if persisted.counted_from is None:
            return
        span = max(0.0, now - persisted.counted_from)
        persisted.executed += span
        persisted.attained += span * self.units(entry, entry.counted_workers) / MILLI
        persisted.counted_from = now if entry.running_workers else None

    def stop(self, entry: JobEntry, now: float) -> None:
        """End the attempt."""
        self.accrue(entry, now)
        persisted = entry.job.persisted
        persisted.started_at = persisted.counted_from = None
        persisted.reached_step = max(persisted.reached_step, -1 if persisted.step is None else persisted.step)
        entry.counted_workers = 0

    def suspend(self, entry: JobEntry, now: float) -> None:
        """Accrue the time for which the user suspends the job, after its first start."""
        persisted, is_suspended = entry.job.persisted, entry.parsed_job.is_suspended
        if is_suspended and persisted.suspended_at is None and persisted.first_started_at is not None:
            persisted.suspended_at = now
        elif not is_suspended and persisted.suspended_at is not None:
            persisted.suspended_seconds += max(0.0, now - persisted.suspended_at)
            persisted.suspended_at = None

    def units(self, entry: JobEntry, workers: int) -> int:
        """Return the counted resource of this many workers, in thousandths."""
        shape = entry.shape
        if not workers:
            return 0
        if self._unit() is ResourceKind.DEVICES:
            return workers * shape.devices
        return workers * shape.cpus + shape.ps * shape.ps_cpus
