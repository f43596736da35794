"""Planned work of jobs that failed or were killed: rules expect them to run on, and they end at their recorded time.

A user who submits a job does not say when it will fail. Such a job is planned to take as long as a completed job of its
category, drawn by the seed from those that took longer than it did; without one, as long as it did.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.backends.simulated.workload import Workload
from sterna.model.speedup import Floats
from sterna.workloads.trace import Trace


def hide_early_ends(workload: Workload, trace: Trace, seed: int) -> Workload:
    """Return the workload with the work beyond its recorded end that each job is planned to do."""
    early = trace.ended_early
    if not early.any():
        return workload
    category, duration = np.array(trace.category), trace.duration_seconds
    draws = np.random.default_rng([seed, 8]).random(len(trace))
    planned: Floats = duration.copy()
    for each in np.unique(category[early]):
        rows = np.flatnonzero(early & (category == each))
        completed = duration[~early & (category == each)]
        known = np.sort(completed if len(completed) else duration[~early])
        first = known.searchsorted(duration[rows], side="right")
        longer = first < len(known)
        pick = (first + (draws[rows] * (len(known) - first)).astype(np.int64))[longer]
        planned[rows[longer]] = known[pick]
    return replace(workload, unplanned_work=workload.work * (planned / duration - 1))
