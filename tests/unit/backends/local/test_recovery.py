"""Recovery of jobs, processes and progress after a crash of the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.errors import Retry
from sterna.model.job import Resizing
from tests.fakes.local_cluster import LocalRun
from tests.fakes.local_cluster import make as make
from tests.fakes.machine import some_slices


def test_recovery_finds_all_jobs_and_processes(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    for name in "abc":
        local.submit(name, 30)
    local.run_for(5)
    ran = {name: local.cluster.job(name).ran_seconds for name in "abc"}
    local.crash()
    assert [local.state(name) for name in "abc"] == ["running", "running", "waiting"]
    assert {name: local.cluster.job(name).ran_seconds for name in "abc"} == pytest.approx(ran)
    local.machine.end("a/1/worker-0", 0)
    local.crash()
    assert local.state("a") == "completed"
    local.run_for()
    assert [local.state(name) for name in "abc"] == ["completed"] * 3
    assert local.machine.most_at_once == {"a": 1, "b": 1, "c": 1}
    assert [local.cluster.job(name).attempt for name in "abc"] == [1, 1, 1]


def test_recovery_sends_a_recorded_stop_request(
    make: Callable[..., LocalRun],
) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    attempt = local.at.backend.store.find("a").record.attempt
    assert attempt is not None
    attempt.stopping = "stop request not sent yet"
    local.at.backend.store.save_later(local.at.backend.store.find("a"))
    local.crash()
    local.settle()
    assert local.machine.asked == ["a/1/worker-0"]
    local.run_for()
    assert local.state("a") == "completed"


def test_worker_lost_before_its_start_does_not_restart_the_job(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    local.settle()
    del local.machine.processes["a/1/worker-1"]
    local.crash()
    local.settle()
    assert local.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert local.cluster.job("a").attempt == 1
    assert "worker-1" not in (local.folder / "jobs" / "a" / "world.json").read_text()


def test_failed_stop_request_is_retried(make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()

    def refuse(*_: object) -> None:
        raise Retry("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(local.machine, "stop", refuse)
        local.cluster.drain("node0")
        local.settle()
    assert local.state("a") == "stopping"
    local.run_for(3)
    assert local.state("a") == "waiting"


def test_launch_spec_without_a_process_is_voided_and_a_new_attempt_starts(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a", 5)
    local.settle()
    del local.machine.processes["a/1/worker-0"]  # the daemon crashed after writing the launch spec, before the start
    local.crash()
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").attempt == 2
    assert local.cluster.job("a").restarts == 0


def test_restart_with_other_nodes_moves_the_jobs(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 30)
    local.submit("b", 30)
    local.run_for(3)
    local.slices = some_slices(1)
    local.crash()
    local.run_for()
    assert (local.state("a"), local.state("b")) == ("completed", "completed")
    assert local.machine.most_at_once == {"a": 1, "b": 1}


def test_growth_and_progress_survive_a_crash(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a", 1000)
    local.settle()
    job = local.at.backend.store.find("a")
    for step in range(200):
        local.machine.now += 2
        loss = 1.0 if step > 40 else 3.0 - 0.05 * step
        local.cluster.report("a", step, 300, {"loss": loss})
    assert job.progress is not None
    before = local.cluster.job("a")
    assert before.growth == "converged"
    local.crash()
    after = local.cluster.job("a")
    assert (after.step, after.total, after.value, after.growth) == (199, 300, 1.0, "converged")
    assert len(local.cluster.history("a")) == 200


def test_recovery_removes_orphaned_folders(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    stranger = local.folder / "jobs" / "stranger" / "1" / "worker-0"
    stranger.mkdir(parents=True)
    local.crash()
    assert not stranger.exists()
