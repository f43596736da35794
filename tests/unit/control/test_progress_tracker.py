"""Growth, remaining work and learned curves, computed from progress reports."""

from __future__ import annotations

import math

import pytest

from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressTracker, SpeedSample, category_of
from sterna.model.growth import Growth
from sterna.model.job import ProgressSpec


def a_report(step: int, total: int | None = 100, **metrics: float | None) -> ProgressReport:
    return ProgressReport(1000.0 + step, step, total, dict(metrics))


def feed(tracker: ProgressTracker, key: int, steps: range, workers: int = 1, seconds: float = 2.0) -> set[int]:
    """Add reports of a job whose steps take `seconds` each; return the keys of the changed jobs."""
    news: set[int] = set()
    for step in steps:
        news |= tracker.add_reports(
            [(key, [a_report(step, loss=1 / (step + 1))], SpeedSample(1, workers, seconds * step))]
        )
    return news


def test_remaining_work_is_steps_times_step_seconds_and_unknown_without_a_total() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    assert math.isnan(tracker.remaining(progress))
    assert feed(tracker, 1, range(10)) == {1}  # it has become known
    assert tracker.remaining(progress) == pytest.approx(91 * 2.0, rel=0.01)
    without = tracker.follow(2, ProgressSpec(), "b")
    tracker.add_reports(
        [(2, [a_report(1, None)], SpeedSample(1, 1, 1.0)), (2, [a_report(2, None)], SpeedSample(1, 1, 2.0))]
    )
    assert math.isnan(tracker.remaining(without))


def test_remaining_work_of_a_silent_job_is_estimated_from_its_category() -> None:
    tracker = ProgressTracker(LearnedCurves())
    tracker.follow(1, ProgressSpec(), "alike")
    feed(tracker, 1, range(50))
    later = tracker.follow(2, ProgressSpec(total=1000), "alike")
    assert tracker.remaining(later) == pytest.approx(2000, rel=0.1)


def test_speed_up_of_a_category_is_learned_from_several_sizes() -> None:
    learned_curves = LearnedCurves()
    for workers, seconds in ((1, 10.0), (2, 6.0), (4, 4.0)):
        learned_curves.add_steps("a", workers, 100, 100 * seconds)
    assert learned_curves.speed("a", 1) == 1.0
    assert 1.4 < learned_curves.speed("a", 2) < 2.0
    assert learned_curves.speed("a", 2) < learned_curves.speed("a", 4) < 4.0
    assert learned_curves.speed("unheard of", 3) == 3.0
    assert [record.category for record in learned_curves.pop_unsaved()] == ["a"]
    assert learned_curves.pop_unsaved() == []
    assert LearnedCurves(learned_curves.learned.records).speed("a", 4) == learned_curves.speed("a", 4)


def test_tracked_metric_is_the_declared_one_else_loss_else_the_first() -> None:
    tracker = ProgressTracker(LearnedCurves())
    first = tracker.follow(1, ProgressSpec(), "a")
    tracker.add_reports([(1, [a_report(1, accuracy=0.5, loss=2.0)], SpeedSample(1, 1, 1.0))])
    assert (first.metric, first.value) == ("loss", 2.0)
    second = tracker.follow(2, ProgressSpec(metric="accuracy"), "a")
    tracker.add_reports([(2, [a_report(1, loss=2.0), a_report(2, accuracy=0.5)], SpeedSample(1, 1, 1.0))])
    assert (second.metric, second.value) == ("accuracy", 0.5)
    third = tracker.follow(3, ProgressSpec(), "a")
    tracker.add_reports([(3, [a_report(1), a_report(2, reward=7.0)], SpeedSample(1, 1, 1.0))])
    assert (third.metric, third.value) == ("reward", 7.0)


def test_missing_values_are_skipped_and_job_without_a_metric_keeps_progressing() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    tracker.add_reports([(1, [a_report(step, loss=None) for step in range(30)], SpeedSample(1, 1, 1.0))])
    assert progress.value is None
    assert tracker.growth_of(progress) is Growth.PROGRESSING


def test_converged_job_is_returned_as_changed() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    news: set[int] = set()
    for step in range(200):
        loss = max(1.0, 5.0 - 0.2 * step)
        news |= tracker.add_reports([(1, [a_report(step, 200, loss=loss)], SpeedSample(1, 1, float(step)))])
        assert tracker.growth_of(progress) < Growth.CONVERGED or step >= 100, "before half of its total"
    assert tracker.growth_of(progress) is Growth.CONVERGED
    assert progress.growth_since > 1000
    assert news == {1}


def test_slots_of_forgotten_jobs_are_reset_before_reuse() -> None:
    tracker = ProgressTracker(LearnedCurves())
    for key in range(100):
        progress = tracker.follow(key, ProgressSpec(), "a")
        assert tracker.growth_of(progress) is Growth.PROGRESSING
        feed(tracker, key, range(3))
        if key % 2:
            tracker.forget(key, is_complete=True)
    assert tracker.of(1) is None
    assert tracker.of(2) is not None


@pytest.mark.parametrize(
    ("name", "declared", "category"),
    [("mnist-12", "", "mnist"), ("job7", "", "job"), ("cnn", "", "cnn"), ("42", "", "42"), ("a1", "vision", "vision")],
)
def test_category_is_the_name_without_its_number(name: str, declared: str, category: str) -> None:
    assert category_of(name, declared) == category


def _growth(values: list[float], spec: ProgressSpec) -> Growth:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, spec, "x")
    for n, value in enumerate(values):
        a_report = ProgressReport(10.0 * n, n, 100, {"score": value})
        tracker.add_reports([(1, [a_report], SpeedSample(1, 1, a_report.at))])
    return tracker.growth_of(progress)


def test_declared_goal_decides_whether_a_falling_metric_is_progress() -> None:
    falls = [100.0 - n for n in range(40)]
    assert _growth(falls, ProgressSpec(metric="score", goal="min")) is Growth.PROGRESSING
    assert _growth(falls, ProgressSpec(metric="score", goal="max")) is not Growth.PROGRESSING
