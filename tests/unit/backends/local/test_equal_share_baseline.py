"""Completion times that equal CPU shares would have given."""

from __future__ import annotations

import math

import pytest

from sterna.backends.local.equal_share_baseline import LocalBaseline
from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.records import JobRecord
from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressTracker, SpeedSample
from sterna.model.cluster import NOWHERE, Shape
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec
from tests.fakes.machine import some_slices


def a_local_job(key: int, tracker: ProgressTracker, total_seconds: float) -> LocalJob:
    spec = JobSpec(f"j{key}", "TrainingJob", (ReplicaSpec("worker", 1, ("true",)),), 1, 1, 1)
    progress = tracker.follow(key, ProgressSpec(), "a")
    for step in (0, 1):
        report = ProgressReport(float(step), step, 10, {"loss": 1.0})
        tracker.add_reports([(key, [report], SpeedSample(1, 1, step * total_seconds / 10))])
    return LocalJob(
        JobRecord(key=key, spec=spec, submitted_at=0.0, minimum=1, maximum=1), Shape(0, 10), 1.0, NOWHERE, progress
    )


def test_baseline_divides_cpu_equally_and_remembers_completed_jobs() -> None:
    tracker = ProgressTracker(LearnedCurves())
    jobs = [a_local_job(1, tracker, 10.0), a_local_job(2, tracker, 30.0)]
    baseline = LocalBaseline(some_slices(1, is_shared=True), 0.0)
    ends = baseline.completions(0.0, jobs, tracker)
    assert ends[1] == pytest.approx(20.0, rel=0.02)
    assert ends[2] == pytest.approx(40.0, rel=0.02)
    later = baseline.completions(25.0, jobs, tracker)
    assert later[1] == pytest.approx(20.0, rel=0.02)
    assert later[2] == pytest.approx(40.0, rel=0.02)


def test_baseline_fills_nodes_by_count_and_has_no_completion_for_unknown_totals() -> None:
    tracker = ProgressTracker(LearnedCurves())
    jobs = [a_local_job(key, tracker, 10.0) for key in (1, 2)]
    spec = jobs[0].record.spec
    unknown = LocalJob(
        JobRecord(key=3, spec=spec, submitted_at=0.0, minimum=1, maximum=1), Shape(0, 10), 1.0, NOWHERE, None
    )
    baseline = LocalBaseline(some_slices(1, 1, is_shared=True), 0.0)
    ends = baseline.completions(0.0, [*jobs, unknown], tracker)
    assert ends[2] == pytest.approx(10.0, rel=0.02)
    assert ends[1] == pytest.approx(20.0, rel=0.02)  # next to a job without a completion time
    assert math.isnan(ends[3])
