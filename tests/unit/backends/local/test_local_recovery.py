"""A daemon that comes back finds everything again, wherever its predecessor died."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.errors import Retry
from sterna.model.job import Resizing
from tests.fakes.local_cluster import LocalRun
from tests.fakes.local_cluster import make as make
from tests.fakes.machine import some_slices


def test_after_a_crash_everything_is_found_again(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    for name in "abc":
        world.submit(name, 30)
    world.run_for(5)
    ran = {name: world.cluster.job(name).ran_seconds for name in "abc"}
    world.crash()
    assert [world.state(name) for name in "abc"] == ["running", "running", "waiting"]
    assert {name: world.cluster.job(name).ran_seconds for name in "abc"} == pytest.approx(ran)
    world.machine.end("a/1/worker-0", 0)
    world.crash()
    assert world.state("a") == "completed"
    world.run_for()
    assert [world.state(name) for name in "abc"] == ["completed"] * 3
    assert world.machine.most_at_once == {"a": 1, "b": 1, "c": 1}
    assert [world.cluster.job(name).attempt for name in "abc"] == [1, 1, 1]


def test_a_stop_that_was_written_down_but_not_asked_for_is_asked_for_after_a_crash(
    make: Callable[..., LocalRun],
) -> None:
    world = make(1)
    world.submit("a", 100)
    world.settle()
    attempt = world.at.backend.store.find("a").record.attempt
    assert attempt is not None
    attempt.stopping = "it was about to be asked"
    world.at.backend.store.save_later(world.at.backend.store.find("a"))
    world.crash()
    world.settle()
    assert world.machine.asked == ["a/1/worker-0"]
    world.run_for()
    assert world.state("a") == "completed"


def test_a_newcomer_that_a_crash_kept_from_starting_costs_the_others_nothing(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    del world.machine.processes["a/1/worker-1"]
    world.crash()
    world.settle()
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert world.cluster.job("a").attempt == 1
    assert "worker-1" not in (world.folder / "jobs" / "a" / "world.json").read_text()


def test_what_could_not_be_asked_is_asked_again(make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(1)
    world.submit("a", 100)
    world.settle()

    def refuse(*_: object) -> None:
        raise Retry("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.machine, "stop", refuse)
        world.cluster.drain("node0")
        world.settle()
    assert world.state("a") == "stopping"
    world.run_for(3)
    assert world.state("a") == "waiting"


def test_an_intention_without_a_process_is_voided_and_begun_anew(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("a", 5)
    world.settle()
    del world.machine.processes["a/1/worker-0"]  # the daemon died between writing it down and asking for it
    world.crash()
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2
    assert world.cluster.job("a").restarts == 0


def test_a_daemon_that_comes_back_with_other_nodes_moves_its_jobs_there(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", 30)
    world.submit("b", 30)
    world.run_for(3)
    world.slices = some_slices(1)
    world.crash()
    world.run_for()
    assert (world.state("a"), world.state("b")) == ("completed", "completed")
    assert world.machine.most_at_once == {"a": 1, "b": 1}


def test_growth_and_progress_survive_a_crash(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("a", 1000)
    world.settle()
    job = world.at.backend.store.find("a")
    for step in range(200):
        world.machine.now += 2
        loss = 1.0 if step > 40 else 3.0 - 0.05 * step
        world.cluster.report("a", step, 500, {"loss": loss})
    assert job.progress is not None
    before = world.cluster.job("a")
    assert before.growth == "converged"
    world.crash()
    after = world.cluster.job("a")
    assert (after.step, after.total, after.value, after.growth) == (199, 500, 1.0, "converged")
    assert len(world.cluster.history("a")) == 200


def test_folders_that_no_job_owns_are_cleared(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    stranger = world.folder / "jobs" / "stranger" / "1" / "worker-0"
    stranger.mkdir(parents=True)
    world.crash()
    assert not stranger.exists()
