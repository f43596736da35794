"""The local jobs under equal CPU shares, for the guard of a CPU share rule.

A job's total is its current estimate, so the baseline is as good as the progress reports; a job whose total is unknown
has no predicted completion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.node_slices import Slices
from sterna.control.progress_tracker import ProgressTracker
from sterna.engine.cpu_sharing.equal_share_baseline import EqualShareBaseline


class LocalBaseline:
    """`EqualShareBaseline` that follows the jobs of the database."""

    def __init__(self, slices: Slices, now: float) -> None:
        self._baseline = EqualShareBaseline([float(len(node.cores)) for node in slices.nodes], now)

    def completions(self, now: float, jobs: Sequence[LocalJob], tracker: ProgressTracker) -> Mapping[int, float]:
        """Return when each of these jobs ends or has ended there; NaN where its total is unknown."""
        self._baseline.advance(now)
        present = {job.key for job in jobs}
        for key in self._baseline.keys:
            if key not in present:
                self._baseline.remove(key)
        for job in jobs:
            self._update(job, tracker)
        return self._baseline.completions()

    def _update(self, job: LocalJob, tracker: ProgressTracker) -> None:
        if job.key not in self._baseline:
            self._baseline.add(job.key, job.cores * max(1, job.record.spec.request))
        progress = job.progress
        remaining = tracker.remaining(progress) if progress else math.nan
        had = progress.sample.work if progress is not None and progress.sample is not None else 0.0
        if not math.isnan(remaining):
            self._baseline.set_total(job.key, (had + remaining) * job.cores)
