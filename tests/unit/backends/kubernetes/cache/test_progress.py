"""Reports of pods become columns and status of their job; late, repeated and invalid reports change nothing."""

from __future__ import annotations

import math

import pytest

from sterna.backends.kubernetes.api.job import KubeJob, PodState
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.model.growth import Growth, GrowthRule
from sterna.model.snapshot import NEVER
from tests.unit.backends.kubernetes.cache.progress_builders import (
    START,
    batch,
    find_in,
    report,
    running_job,
    training,
)


def following(*jobs: KubeJob, rule: GrowthRule | None = None) -> Progress:
    progress = Progress(rule)
    for job in jobs:
        progress.follow(job)
    return progress


def test_a_job_that_was_not_heard_of_is_unknown_and_progressing() -> None:
    progress = following(running_job())
    columns = progress.columns([1, 99])
    assert math.isnan(columns.remaining[0])
    assert columns.growth.tolist() == [Growth.PROGRESSING, Growth.PROGRESSING]
    assert columns.growth_since.tolist() == [-NEVER, -NEVER]
    assert progress.view(1).growth == "unknown"
    assert progress.view(99).step is None


def test_reports_determine_remaining_work_and_progress() -> None:
    job = running_job()
    progress = following(job)
    for count in range(1, 21):
        news = progress.take([batch(progress, training(1, first=count))], find_in(job), START + count)
    assert progress.columns([1]).remaining[0] == pytest.approx(980, rel=0.05)
    view = progress.view(1)
    assert (view.step, view.total, view.percent, view.metric, view.value) == (20, 1000, 2, "loss", 0.5)
    assert progress.steps_left(1) == 980
    assert news == set()


def test_the_loop_hears_when_a_forecast_becomes_possible() -> None:
    job = running_job()
    progress = following(job)
    assert progress.take([batch(progress, training(1))], find_in(job), START + 1) == set()
    assert progress.take([batch(progress, training(1, first=2))], find_in(job), START + 2) == {1}


def test_a_status_gets_an_eta_with_a_band_once_there_is_a_course() -> None:
    job = running_job()
    progress = following(job)
    progress.take([batch(progress, training(60))], find_in(job), START + 60)
    view = progress.view(1)
    assert view.eta_low_seconds is not None
    assert view.eta_seconds is not None
    assert view.eta_high_seconds is not None
    assert view.eta_low_seconds <= view.eta_seconds <= view.eta_high_seconds
    assert progress.view(1, has_eta=False).eta_seconds is None


def test_a_job_s_own_memory_keeps_up_so_that_a_successor_knows_it() -> None:
    job = running_job()
    progress = following(job)
    progress.take([batch(progress, training(5))], find_in(job), START + 5)
    assert (job.persisted.step, job.persisted.total, job.persisted.metric, job.persisted.value) == (
        5,
        1000,
        "loss",
        2.0,
    )
    successor = following(job)
    view = successor.view(1)
    assert (view.step, view.total, view.metric, view.value) == (5, 1000, "loss", 2.0)


def test_a_successor_that_receives_all_reports_again_judges_like_its_predecessor() -> None:
    """DRAGON-48: nothing about a job is lost with an operator."""
    job = running_job()
    course = [report(step, step, 300, loss=1.0 / min(step, 20)) for step in range(1, 200)]
    first = following(job)
    first.take([batch(first, course)], find_in(job), START + 200)
    second = following(job)
    second.take([batch(second, course)], find_in(job), START + 210)
    assert first.columns([1]).growth[0] == Growth.CONVERGED
    assert second.columns([1]).growth[0] == Growth.CONVERGED
    assert second.view(1).step == 199


def test_a_repeated_report_counts_once() -> None:
    job = running_job()
    progress = following(job)
    reports = [report(at, None, None, value=1.0 / at, source="monitor") for at in range(1, 30)]
    progress.take([batch(progress, reports)], find_in(job), START + 30)
    once = progress.history(1)
    progress.take([batch(progress, reports)], find_in(job), START + 31)
    assert progress.history(1) == once


def test_repeated_reports_are_detected_per_source_of_a_pod() -> None:
    job = running_job()
    progress = following(job)
    progress.take([batch(progress, [report(9, 9, loss=1.0)])], find_in(job), START + 9)
    progress.take([batch(progress, [report(8, 8, loss=1.1, source="stdout")])], find_in(job), START + 9)
    assert len(progress.history(1)) == 2


def test_reports_of_unknown_pods_and_untracked_jobs_change_nothing() -> None:
    job = running_job()
    progress = Progress()
    assert progress.take([batch(progress, training(5))], find_in(job), START + 5) == set()
    progress.follow(job)
    assert progress.take([batch(progress, training(5), uid="uid-of-nobody")], find_in(job), START + 5) == set()
    assert job.persisted.step is None


def test_batches_that_were_meant_for_another_memory_are_left_for_their_monitors_to_repeat() -> None:
    job = running_job()
    stale = batch(following(job), training(5))
    progress = following(job)
    assert progress.take([stale], find_in(job), START + 5) == set()
    assert job.persisted.step is None
    progress.take([batch(progress, training(5))], find_in(job), START + 5)
    assert job.persisted.step == 5


# Who speaks for a job.


def test_one_pod_speaks_for_a_gang() -> None:
    job = running_job(workers=3)
    progress = following(job)
    progress.take([batch(progress, [report(1, 100, 1000)], "uid-worker-1-1")], find_in(job), START + 1)
    progress.take([batch(progress, [report(2, 7, 1000)], "uid-worker-2-1")], find_in(job), START + 2)
    assert job.persisted.step == 100
    progress.take([batch(progress, [report(3, 120, 1000)], "uid-worker-0-1")], find_in(job), START + 3)
    assert job.persisted.step == 120, "the first of the gang is heard though another has spoken"


def test_another_pod_speaks_when_the_first_has_been_silent_for_long() -> None:
    job = running_job(workers=2)
    progress = following(job)
    progress.take([batch(progress, [report(1, 10)], "uid-worker-0-1")], find_in(job), START + 1)
    progress.take([batch(progress, [report(20, 15)], "uid-worker-1-1")], find_in(job), START + 20)
    assert job.persisted.step == 10
    progress.take([batch(progress, [report(40, 30)], "uid-worker-1-1")], find_in(job), START + 40)
    assert job.persisted.step == 30


def test_pods_of_an_older_attempt_are_heard_only_about_what_they_saved() -> None:
    job = running_job(attempt=2)
    progress = following(job)
    progress.take([batch(progress, [report(5, 900), report(6, 900, saved=True)])], find_in(job), START + 6)
    assert job.persisted.step is None
    assert job.persisted.saved_at == START + 6


# Time.


def test_times_of_a_node_with_a_wrong_clock_are_converted_to_the_operators_clock() -> None:
    job = running_job()
    progress = following(job)
    reports = [report(step - 500.0, step, 1000, loss=1.0 / step) for step in range(1, 11)]
    progress.take([batch(progress, reports, sent_at=START - 490)], find_in(job), START + 10)
    assert progress.history(1)[-1].at == pytest.approx(START + 10)
    assert progress.history(1)[0].at == pytest.approx(START + 1)


@pytest.mark.parametrize("absurd", [1e12, -1e12, math.nan, math.inf], ids=str)
def test_absurd_times_do_not_keep_later_reports_out(absurd: float) -> None:
    job = running_job()
    progress = following(job)
    first = [report(1, 1, 1000, loss=9.0), report(absurd, 2, 1000, loss=8.0)]
    progress.take([batch(progress, first, sent_at=START + 2)], find_in(job), START + 2)
    later = [report(step, step, 1000, loss=10.0 / step, source="csv") for step in range(3, 10)]
    progress.take([batch(progress, later, sent_at=START + 10)], find_in(job), START + 10)
    assert job.persisted.step == 9
    assert progress.history(1)[-1].at == START + 9


def test_a_pod_that_shares_its_node_is_paced_by_the_cpu_it_was_given() -> None:
    """DRAGON-82: a job that was given less does not look slower than it is."""
    job = running_job(devices=0)
    progress = following(job)
    for step in range(1, 21):
        sample = report(10.0 * step, step, 100, loss=1.0 / step, cpu_seconds=2.0 * step)
        progress.take([batch(progress, [sample])], find_in(job), START + 10.0 * step)
    assert progress.columns([1]).remaining[0] == pytest.approx(2.0 * 80, rel=0.05)


def test_the_pace_of_a_gang_is_counted_by_the_workers_that_run() -> None:
    job = running_job(workers=2)
    progress = following(job)
    for step in range(1, 21):
        progress.take([batch(progress, training(1, first=step))], find_in(job), START + step)
    both = progress.columns([1]).remaining[0]
    job.pods["worker", 1].state = PodState.FAILED
    for step in range(21, 41):
        progress.take([batch(progress, training(1, first=step))], find_in(job), START + step)
    assert both > 1.2 * progress.columns([1]).remaining[0]


# Learned curves.


def test_what_a_restart_costs_is_learned_from_the_first_report_after_it() -> None:
    usual = Progress().restart_seconds
    job = running_job(started_at=START + 100, first_started_at=START)
    progress = following(job)
    progress.take([batch(progress, training(3, first=140))], find_in(job), START + 143)
    assert progress.restart_seconds == pytest.approx((usual + 40) / 2)
    progress.take([batch(progress, training(3, first=150))], find_in(job), START + 153)
    assert progress.restart_seconds == pytest.approx((usual + 40) / 2), "one start teaches once"


def test_jobs_of_a_category_profit_from_what_another_has_shown() -> None:
    teacher, pupil = running_job(name="resnet-1"), running_job(key=2, name="resnet-2", total=500)
    progress = following(teacher, pupil)
    assert math.isnan(progress.columns([2]).remaining[0])
    for step in range(1, 31):
        progress.take([batch(progress, training(1, first=step))], find_in(teacher), START + step)
    assert progress.columns([2]).remaining[0] == pytest.approx(500, rel=0.1)


def test_a_successor_goes_on_with_what_was_learned_before() -> None:
    job = running_job(name="resnet-1")
    progress = following(job)
    for step in range(1, 31):
        progress.take([batch(progress, training(1, first=step))], find_in(job), START + step)
    successor = following(running_job(name="resnet-7", total=500))
    assert math.isnan(successor.columns([1]).remaining[0])
    successor.recall(progress.learned_curves.by_age)
    assert successor.columns([1]).remaining[0] == pytest.approx(500, rel=0.1)


# Life.


def test_rows_of_jobs_that_ended_serve_other_jobs() -> None:
    progress = Progress()
    for key in range(1, 40):
        job = running_job(key=key)
        progress.follow(job)
        progress.take([batch(progress, training(3), uid=f"uid-{key}-0")], find_in(job), START + 3)
        if key % 2:
            progress.forget(key, is_complete=True)
    assert math.isnan(progress.columns([1]).remaining[0])
    followed = [key for key in range(1, 40) if key % 2 == 0]
    assert progress.columns(followed).curve.tolist() == [progress.columns([2]).curve[0]] * len(followed)
    progress.forget(1)
    progress.forget_pod("uid-1-0")


def test_a_long_history_is_kept_thinly_with_its_end() -> None:
    job = running_job()
    progress = following(job)
    for step in range(1, 400):
        progress.take([batch(progress, training(1, first=step))], find_in(job), START + step)
    points = progress.history(1)
    assert len(points) <= 64
    assert points[0].step == 1
    assert points[-1].step == 399
