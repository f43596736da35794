"""What a local cluster makes of progress reports: growth, work left, lessons, and the shadow of equal shares."""

from __future__ import annotations

import math
import os
import threading

import pytest

from sterna.backends.local.equal_share_baseline import LocalBaseline
from sterna.backends.local.kernel.wakeups import EpollWakeups
from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.records import JobRecord
from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressTracker, SpeedSample, category_of
from sterna.model.cluster import NOWHERE, Shape
from sterna.model.growth import Growth
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec
from tests.fakes.machine import some_slices


def told(step: int, total: int | None = 100, **metrics: float | None) -> ProgressReport:
    return ProgressReport(1000.0 + step, step, total, dict(metrics))


def heard(tracker: ProgressTracker, key: int, steps: range, workers: int = 1, seconds: float = 2.0) -> set[int]:
    """Reports of a job whose steps take so long each."""
    news: set[int] = set()
    for step in steps:
        news |= tracker.add_reports([(key, [told(step, loss=1 / (step + 1))], SpeedSample(1, workers, seconds * step))])
    return news


def test_work_left_is_steps_times_pace_and_unknown_without_a_total() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    assert math.isnan(tracker.remaining(progress))
    assert heard(tracker, 1, range(10)) == {1}  # it has become known
    assert tracker.remaining(progress) == pytest.approx(91 * 2.0, rel=0.01)
    without = tracker.follow(2, ProgressSpec(), "b")
    tracker.add_reports([(2, [told(1, None)], SpeedSample(1, 1, 1.0)), (2, [told(2, None)], SpeedSample(1, 1, 2.0))])
    assert math.isnan(tracker.remaining(without))


def test_a_declared_total_and_what_others_took_tell_of_a_job_that_has_not_reported() -> None:
    tracker = ProgressTracker(LearnedCurves())
    tracker.follow(1, ProgressSpec(), "alike")
    heard(tracker, 1, range(50))
    later = tracker.follow(2, ProgressSpec(total=1000), "alike")
    assert tracker.remaining(later) == pytest.approx(2000, rel=0.1)


def test_the_speed_up_of_a_category_is_learned_from_several_sizes() -> None:
    learned_curves = LearnedCurves()
    for workers, seconds in ((1, 10.0), (2, 6.0), (4, 4.0)):
        learned_curves.add_steps("a", workers, 100, 100 * seconds)
    assert learned_curves.speed("a", 1) == 1.0
    assert 1.4 < learned_curves.speed("a", 2) < 2.0
    assert learned_curves.speed("a", 2) < learned_curves.speed("a", 4) < 4.0
    assert learned_curves.speed("unheard of", 3) == 3.0
    assert [lesson.category for lesson in learned_curves.pop_unsaved()] == ["a"]
    assert learned_curves.pop_unsaved() == []
    assert LearnedCurves(learned_curves.learned.lessons).speed("a", 4) == learned_curves.speed("a", 4)


def test_the_metric_that_counts_is_the_declared_one_else_loss_else_the_first() -> None:
    tracker = ProgressTracker(LearnedCurves())
    first = tracker.follow(1, ProgressSpec(), "a")
    tracker.add_reports([(1, [told(1, accuracy=0.5, loss=2.0)], SpeedSample(1, 1, 1.0))])
    assert (first.metric, first.value) == ("loss", 2.0)
    second = tracker.follow(2, ProgressSpec(metric="accuracy"), "a")
    tracker.add_reports([(2, [told(1, loss=2.0), told(2, accuracy=0.5)], SpeedSample(1, 1, 1.0))])
    assert (second.metric, second.value) == ("accuracy", 0.5)
    third = tracker.follow(3, ProgressSpec(), "a")
    tracker.add_reports([(3, [told(1), told(2, reward=7.0)], SpeedSample(1, 1, 1.0))])
    assert (third.metric, third.value) == ("reward", 7.0)


def test_what_is_no_number_is_kept_out_and_a_job_without_a_metric_is_not_judged() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    tracker.add_reports([(1, [told(step, loss=None) for step in range(30)], SpeedSample(1, 1, 1.0))])
    assert progress.value is None
    assert tracker.growth_of(progress) is Growth.PROGRESSING


def test_a_job_that_stopped_improving_is_news() -> None:
    tracker = ProgressTracker(LearnedCurves())
    progress = tracker.follow(1, ProgressSpec(), "a")
    news: set[int] = set()
    for step in range(200):
        loss = max(1.0, 5.0 - 0.2 * step)
        news |= tracker.add_reports([(1, [told(step, 500, loss=loss)], SpeedSample(1, 1, float(step)))])
    assert tracker.growth_of(progress) is Growth.CONVERGED
    assert progress.growth_since > 1000
    assert news == {1}


def test_slots_of_forgotten_jobs_are_used_again_as_new() -> None:
    tracker = ProgressTracker(LearnedCurves())
    for key in range(100):
        progress = tracker.follow(key, ProgressSpec(), "a")
        assert tracker.growth_of(progress) is Growth.PROGRESSING
        heard(tracker, key, range(3))
        if key % 2:
            tracker.forget(key, is_complete=True)
    assert tracker.of(1) is None
    assert tracker.of(2) is not None


@pytest.mark.parametrize(
    ("name", "declared", "category"),
    [("mnist-12", "", "mnist"), ("job7", "", "job"), ("cnn", "", "cnn"), ("42", "", "42"), ("a1", "vision", "vision")],
)
def test_the_category_is_the_name_without_what_numbers_it(name: str, declared: str, category: str) -> None:
    assert category_of(name, declared) == category


def a_local_job(key: int, tracker: ProgressTracker, total_seconds: float) -> LocalJob:
    spec = JobSpec(f"j{key}", "TrainingJob", (ReplicaSpec("worker", 1, ("true",)),), 1, 1, 1)
    progress = tracker.follow(key, ProgressSpec(), "a")
    for step in (0, 1):
        report = ProgressReport(float(step), step, 10, {"loss": 1.0})
        tracker.add_reports([(key, [report], SpeedSample(1, 1, step * total_seconds / 10))])
    return LocalJob(
        JobRecord(key=key, spec=spec, submitted_at=0.0, minimum=1, maximum=1), Shape(0, 10), 1.0, NOWHERE, progress
    )


def test_the_shadow_shares_alike_and_remembers_who_would_have_ended() -> None:
    tracker = ProgressTracker(LearnedCurves())
    jobs = [a_local_job(1, tracker, 10.0), a_local_job(2, tracker, 30.0)]
    baseline = LocalBaseline(some_slices(1, is_shared=True), 0.0)
    ends = baseline.completions(0.0, jobs, tracker)
    assert ends[1] == pytest.approx(20.0, rel=0.02)
    assert ends[2] == pytest.approx(40.0, rel=0.02)
    later = baseline.completions(25.0, jobs, tracker)
    assert later[1] == pytest.approx(20.0, rel=0.02)
    assert later[2] == pytest.approx(40.0, rel=0.02)


def test_the_shadow_fills_nodes_by_count_and_says_nothing_of_unknown_totals() -> None:
    tracker = ProgressTracker(LearnedCurves())
    jobs = [a_local_job(key, tracker, 10.0) for key in (1, 2)]
    spec = jobs[0].record.spec
    unknown = LocalJob(
        JobRecord(key=3, spec=spec, submitted_at=0.0, minimum=1, maximum=1), Shape(0, 10), 1.0, NOWHERE, None
    )
    baseline = LocalBaseline(some_slices(1, 1, is_shared=True), 0.0)
    ends = baseline.completions(0.0, [*jobs, unknown], tracker)
    assert ends[2] == pytest.approx(10.0, rel=0.02)
    assert ends[1] == pytest.approx(20.0, rel=0.02)  # beside one that stays for ever
    assert math.isnan(ends[3])


def test_a_pulse_wakes_for_calls_and_for_descriptors() -> None:
    wakeups = EpollWakeups()
    reading, writing = os.pipe()
    wakeups.follow("pipe", reading)
    assert list(wakeups.wait(0.0)) == []
    os.write(writing, b"x")
    assert list(wakeups.wait(None)) == ["pipe"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    caller = threading.Thread(target=wakeups.wake)
    caller.start()
    assert list(wakeups.wait(None)) == []
    caller.join()
    os.close(writing)
    wakeups.close()
