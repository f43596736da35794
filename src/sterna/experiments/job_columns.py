"""Table of a result with one row per job of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

if TYPE_CHECKING:
    from sterna.experiments.result import Result


def job_columns(result: Result) -> dict[str, list[object]]:
    """Return columns with one entry per job of the trace, in submit order; None where the job never got there."""
    times, trace, metrics = result.times, result.scenario.trace, result.metrics

    def spread(values: Floats | Ints | None) -> list[object]:
        """Return one entry per job of the trace; None for jobs that were not simulated, and for infinite values."""
        column = np.full(len(trace), None, dtype=object)
        if values is not None:
            column[times.row] = [value if np.isfinite(value) else None for value in values.tolist()]
        return list(column)

    state = np.full(len(trace), "unschedulable", dtype=object)
    state[times.row] = np.where(times.is_finished, "finished", "unfinished")
    return {
        "job": list(trace.name),
        "submit_s": trace.submit_seconds.tolist(),
        "start_s": spread(times.start),
        "finish_s": spread(times.finish),
        "jct_s": spread(times.finish - times.submit),
        "wait_s": spread(np.where(np.isfinite(times.start), times.wait, np.inf)),
        "workers": trace.workers.tolist(),
        "min_workers": trace.minimum.tolist(),
        "max_workers": trace.maximum.tolist(),
        "gpus_per_worker": trace.devices_per_worker.tolist(),
        "preemptions": spread(times.stops),
        "state": state.tolist(),
        "model": list(trace.model),
        "user": list(trace.user),
        "pool": list(trace.pool),
        "slowdown": spread(None if metrics is None else metrics.slowdown),
        "fairness": spread(None if metrics is None else metrics.fairness),
        "lost_device_s": spread(None if metrics is None else metrics.lost_device_seconds),
    }
