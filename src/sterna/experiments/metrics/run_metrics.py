"""Metrics of one simulation, by job, by size class and in total.

slowdown          completion time over the run time alone with the requested workers
fairness          finish-time fairness, see `fairness.py`
lost devices      device time of pauses and of work thrown away, by cause; the first start of a job is no loss
across nodes      share of held device time in which a job's workers were on several nodes
fragmentation     see `fragmentation.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.costs import Fault
from sterna.experiments.job_times import JobTimes
from sterna.experiments.metrics.demand import JobDemand, demand_of
from sterna.experiments.metrics.fairness import finish_time_fairness
from sterna.experiments.metrics.fragmentation import fragmentation
from sterna.experiments.metrics.held_spans import HeldSpans, LossCause, held_spans
from sterna.model.cluster import MILLI, Bools, Ints, Nodes
from sterna.model.speedup import Floats

_HOUR = 3600.0

SIZE_CLASSES = {"1": (0.0, 1.0), "2-4": (1.0, 4.0), "5-8": (4.0, 8.0), ">8": (8.0, np.inf)}
"""Devices that a job requests: above the first number, up to the second."""


@dataclass(frozen=True, kw_only=True)
class LostDeviceHours:
    """Device-hours by cause; the index is a `LossCause`."""

    pauses: tuple[float, ...]
    work: tuple[float, ...]

    @property
    def total(self) -> float:
        """Return all losses but first starts, which every policy has."""
        return sum(self.pauses) + sum(self.work) - self.pauses[LossCause.FIRST_START]

    def as_json(self) -> dict[str, dict[str, float]]:
        pauses = {cause.name.lower(): round(self.pauses[cause], 4) for cause in LossCause}
        work = {cause.name.lower(): round(self.work[cause], 4) for cause in LossCause if cause}
        return {"pauses": pauses, "work": work}


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """Metrics of the simulated jobs, in submit order, and of the cluster."""

    demand: JobDemand
    slowdown: Floats
    fairness: Floats
    lost_device_seconds: Floats
    """By job, first starts left out."""
    requested_devices: Floats
    lost: LostDeviceHours
    cross_node_share: float | None
    """None if devices are only counted."""
    fragmentation: float | None

    def by_size(self, times: JobTimes) -> dict[str, dict[str, float | int | None]]:
        """Return averages over the finished jobs of each size class."""
        return {name: self._size_row(times, *bounds) for name, bounds in SIZE_CLASSES.items()}

    def _size_row(self, times: JobTimes, above: float, most: float) -> dict[str, float | int | None]:
        rows = (self.requested_devices > above) & (self.requested_devices <= most)
        done: Bools = rows & times.is_finished
        return {
            "jobs": int(done.sum()),
            "avg_jct_s": rounded_mean((times.finish - times.submit)[done]),
            "avg_wait_s": rounded_mean(times.wait[done]),
            "avg_slowdown": rounded_mean(self.slowdown[done]),
            "avg_fairness": rounded_mean(self.fairness[done]),
            "lost_device_hours": round(float(self.lost_device_seconds[rows].sum()) / _HOUR, 4),
        }


def rounded_mean(values: Floats) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def metrics_of(
    backend: SimulatedBackend,
    times: JobTimes,
    nodes: Nodes,
    faults: Sequence[Fault] = (),
    *,
    is_counted_only: bool = False,
) -> RunMetrics:
    """Compute the metrics of a run from its backend; `is_counted_only`: the placement chose no nodes."""
    workload = backend.jobs
    per_worker: Floats = np.array([shape.devices for shape in workload.shapes.rows])[workload.shape] / MILLI
    demand = demand_of(workload, nodes, backend.costs)
    spans = held_spans(backend.changes, per_worker, backend.costs)
    return RunMetrics(
        demand=demand,
        slowdown=(times.finish - times.submit) / demand.request_seconds,
        fairness=finish_time_fairness(times, workload, per_worker, demand),
        lost_device_seconds=_lost_by_job(spans, len(workload)),
        requested_devices=workload.request * per_worker,
        lost=LostDeviceHours(
            pauses=_sum_by_cause(spans.pause_cause, spans.pause_device_seconds),
            work=_sum_by_cause(spans.lost_cause, spans.lost_device_seconds),
        ),
        cross_node_share=_cross_node_share(spans, is_counted_only),
        fragmentation=None if is_counted_only else fragmentation(workload, backend.changes, nodes, faults),
    )


def _lost_by_job(spans: HeldSpans, jobs: int) -> Floats:
    pauses = np.where(spans.pause_cause == LossCause.FIRST_START, 0.0, spans.pause_device_seconds)
    lost: Floats = np.bincount(spans.job, pauses + spans.lost_device_seconds, minlength=jobs).astype(np.float64)
    return lost


def _sum_by_cause(cause: Ints, device_seconds: Floats) -> tuple[float, ...]:
    return tuple((np.bincount(cause, device_seconds, minlength=len(LossCause)) / _HOUR).tolist())


def _cross_node_share(spans: HeldSpans, is_counted_only: bool) -> float | None:
    if is_counted_only:
        return None
    held = float(spans.device_seconds.sum())
    return float(spans.device_seconds[spans.nodes > 1].sum()) / held if held else 0.0
