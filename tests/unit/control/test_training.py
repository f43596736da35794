"""What jobs tell of themselves, and what follows from it, whoever runs them."""

from __future__ import annotations

from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressTracker, SpeedSample
from sterna.model.growth import Growth
from sterna.model.job import ProgressSpec


def _told(values: list[float], spec: ProgressSpec) -> Growth:
    training = ProgressTracker(LearnedCurves())
    course = training.follow(1, spec, "x")
    reports = [ProgressReport(10.0 * n, n, 100, {"score": value}) for n, value in enumerate(values)]
    for report in reports:
        training.add_reports([(1, [report], SpeedSample(1, 1, report.at))])
    return training.growth_of(course)


def test_a_metric_that_was_declared_is_judged_by_the_goal_that_was_declared_with_it() -> None:
    falls = [100.0 - n for n in range(40)]
    assert _told(falls, ProgressSpec(metric="score", goal="min")) is Growth.PROGRESSING
    assert _told(falls, ProgressSpec(metric="score", goal="max")) is not Growth.PROGRESSING
