"""Failures of local jobs: back-off, a job's place after a failure, crash loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.control.progress_tracker import ProgressReport
from tests.fakes.local_cluster import LocalRun
from tests.fakes.local_cluster import make as make
from tests.unit.backends.local.test_saving import column

Make = Callable[..., LocalRun]


def fail(local: LocalRun, attempt: int, code: int = 1) -> None:
    local.run_for(until=lambda: bool(local.machine.running("a")))
    local.machine.end(f"a/{attempt}/worker-0", code)
    local.settle()


def progress(local: LocalRun, step: int) -> None:
    job = next(job for job in local.at.backend.store.jobs.values() if job.name == "a")
    local.at.backend.watcher.add_reports(job, [ProgressReport(local.machine.now, step, 100, {})])


def test_job_that_failed_at_once_is_barred_and_then_starts_on_free_capacity_only(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    fail(local, 1)
    assert (column(local, "maximum"), column(local, "may_preempt")) == (0, 0)
    assert column(local, "not_before") == pytest.approx(local.machine.now + 1, abs=0.1)
    local.run_for(until=lambda: bool(local.machine.running("a")))
    assert (column(local, "maximum"), column(local, "may_preempt")) == (1, 0)


def test_job_that_made_progress_keeps_its_place_during_the_back_off(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    progress(local, 5)
    fail(local, 1)
    assert (column(local, "maximum"), column(local, "may_preempt")) == (1, 1)
    assert column(local, "not_before") > local.machine.now
    assert "keeps its place in the queue" in local.cluster.job("a").reason


def test_job_that_ran_for_a_minute_keeps_its_place(make: Make) -> None:
    local = make(1)
    local.submit("a", 1000)
    local.run_for(70)
    fail(local, 1)
    assert (column(local, "maximum"), column(local, "may_preempt")) == (1, 1)


def test_job_that_fails_again_without_getting_further_loses_its_place(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    progress(local, 5)
    fail(local, 1)
    local.run_for(until=lambda: bool(local.machine.running("a")))
    progress(local, 5)
    fail(local, 2)
    assert (column(local, "maximum"), column(local, "may_preempt")) == (0, 0)


def test_job_that_runs_well_again_may_preempt_again(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    fail(local, 1)
    local.run_for(until=lambda: bool(local.machine.running("a")))
    progress(local, 5)
    assert column(local, "may_preempt") == 1
    local.cluster.drain("node0")
    local.settle()
    assert column(local, "may_preempt") == 1


def test_lost_exit_is_the_machine_s_failure_and_keeps_the_place(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    local.machine.lose("a/1/worker-0")
    local.settle()
    assert (column(local, "maximum"), column(local, "may_preempt")) == (1, 1)
    assert "an exit that was not recorded" in local.cluster.job("a").reason


def test_reason_names_back_off_exit_code_and_crash_loop(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    fail(local, 1, 127)
    assert local.cluster.job("a").reason.endswith("after exit code 127 (command not found).")
    fail(local, 2, 127)
    assert "2 failures in a row, the last one with exit code 127" in local.cluster.job("a").reason
    fail(local, 3, 127)
    reason = local.cluster.job("a").reason
    assert reason.startswith("waits: back-off until ")
    assert reason.endswith("(command not found), a crash loop; look into its log.")


def test_reason_of_a_job_that_waits_after_its_back_off_names_the_free_capacity(make: Make) -> None:
    local = make(1, policy="fifo:preempt=false")
    local.submit("a", 100)
    local.submit("b", 100)
    fail(local, 1, 2)
    local.run_for(3)
    assert (local.state("a"), local.state("b")) == ("waiting", "running")
    reason = local.cluster.job("a").reason
    assert "back-off" not in reason
    assert "starts on free capacity only" in reason


def test_back_off_starts_anew_after_a_good_run(make: Make) -> None:
    local = make(1)
    local.submit("a", 1000)
    for attempt in (1, 2, 3):
        fail(local, attempt)
    local.run_for(until=lambda: bool(local.machine.running("a")))
    local.run_for(70)
    fail(local, 4)
    assert column(local, "not_before") == pytest.approx(local.machine.now + 1, abs=0.1)
