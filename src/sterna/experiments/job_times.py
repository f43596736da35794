"""Times of every job of a simulation, and a table of them with one row per job of the trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats
from sterna.workloads.trace import Trace


@dataclass(frozen=True, kw_only=True)
class JobTimes:
    """Seconds on the clock of the trace, one entry per simulated job in submit order; infinite: never reached."""

    row: Ints
    """Row of the job in the trace."""
    submit: Floats
    start: Floats
    finish: Floats
    wait: Floats
    stops: Ints | None = None
    """Times that the policy stopped the job; None in results without details."""

    @cached_property
    def is_finished(self) -> Bools:
        return np.isfinite(self.finish)

    @cached_property
    def completion(self) -> Floats:
        """Return the completion times of the jobs that finished."""
        times: Floats = (self.finish - self.submit)[self.is_finished]
        return times

    @property
    def makespan_seconds(self) -> float:
        return float(self.finish[self.is_finished].max() - self.submit[0]) if len(self.completion) else 0.0


def job_columns(times: JobTimes, trace: Trace) -> dict[str, list[object]]:
    """Return columns with one entry per job of the trace, in submit order; None where the job never got there."""
    start, finish, completion, wait = (np.full(len(trace), np.inf) for _ in range(4))
    start[times.row], finish[times.row] = times.start, times.finish
    completion[times.row] = times.finish - times.submit
    wait[times.row] = np.where(np.isfinite(times.start), times.wait, np.inf)
    state = np.full(len(trace), "unschedulable", dtype=object)
    state[times.row] = np.where(times.is_finished, "finished", "unfinished")
    stops = np.full(len(trace), None, dtype=object)
    if times.stops is not None:
        stops[times.row] = times.stops
    return {
        "job": list(trace.name),
        "submit_s": trace.submit_seconds.tolist(),
        "start_s": _finite(start),
        "finish_s": _finite(finish),
        "jct_s": _finite(completion),
        "wait_s": _finite(wait),
        "workers": trace.workers.tolist(),
        "min_workers": trace.minimum.tolist(),
        "max_workers": trace.maximum.tolist(),
        "gpus_per_worker": trace.devices_per_worker.tolist(),
        "preemptions": stops.tolist(),
        "state": state.tolist(),
        "model": list(trace.model),
        "user": list(trace.user),
        "pool": list(trace.pool),
    }


def _finite(values: Floats) -> list[object]:
    return [value if np.isfinite(value) else None for value in values.tolist()]
