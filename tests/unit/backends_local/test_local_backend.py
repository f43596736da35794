"""The local backend above a machine that is not there: what becomes of jobs, round by round, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sterna.backends.local.endings import Patience
from sterna.backends.local.nodes import Slices
from sterna.backends.local.recovery import recover
from sterna.backends.local.training import Told
from sterna.control.controller import Controller
from sterna.errors import Retry, UserError
from sterna.model.job import JobSpec, ReplicaSpec, Resizing, RestartPolicy
from sterna.wiring import make_rules
from tests.fakes.machine import FakeCluster, FakeMachine, a_cluster, some_slices

MILLI = 1000


class World:
    """A cluster, its controller, and the time that passes."""

    def __init__(self, folder: Path, slices: Slices, policy: str = "elastic-fifo", **rules: str) -> None:
        self.folder, self.slices, self._rules = folder, slices, make_rules(policy, "stay", **rules)
        self.at: FakeCluster = a_cluster(folder, slices, patience=Patience(1.0, 8.0))
        self._begin()

    def _begin(self) -> None:
        self.machine, self.cluster = self.at.machine, self.at.cluster
        self.controller = Controller(self.at.backend, self._rules)
        self.until = self.controller.round().until

    def submit(self, name: str, seconds: float = 10.0, size: tuple[int, int] = (1, 1), **more: Any) -> None:
        """A job with so much work for one worker."""
        needs = {key: more.pop(key) for key in ("cpus", "devices") if key in more}
        replicas = (ReplicaSpec("worker", size[0], ("true",), **needs), *more.pop("others", ()))
        self.machine.work[name] = seconds
        kind = more.pop("kind", "TrainingJob")
        self.cluster.create([JobSpec(name, kind, replicas, *size, size[0], **more)])

    def go_on(self, seconds: float = 1000.0, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, or until a fact."""
        end = self.machine.now + seconds
        while self.machine.now < end and not until():
            if not self.at.backend.wait(min(self.until, end)):
                return
            self.until = self.controller.round().until

    def settle(self) -> None:
        """Let happen what happens at once."""
        self.go_on(0.01)

    def state(self, name: str) -> str:
        return self.cluster.job(name).state

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self.cluster.events(name)]

    def crash(self) -> None:
        """The daemon dies and another one comes; processes go on."""
        machine = self.machine
        self.at.store.close()
        self.at = a_cluster(self.folder, self.slices, machine, patience=Patience(1.0, 8.0))
        recover(self.at.backend)
        self._begin()

    def close(self) -> None:
        self.at.store.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def build(*cores: int, devices: int = 0, is_shared: bool = False, **more: Any) -> World:
        made.append(World(tmp_path, some_slices(*(cores or (1, 1)), devices=devices, is_shared=is_shared), **more))
        return made[-1]

    yield build
    for world in made:
        world.close()


def test_jobs_run_one_after_the_other_where_there_is_one_core_each(make: Callable[..., World]) -> None:
    world = make(1)
    for name in "abc":
        world.submit(name)
    world.go_on()
    assert [world.state(name) for name in "abc"] == ["completed"] * 3
    views = {view.name: view for view in world.cluster.jobs()}
    assert [views[name].waited_seconds for name in "abc"] == pytest.approx([0, 10, 20], abs=0.5)
    assert [views[name].ran_seconds for name in "abc"] == pytest.approx([10, 10, 10], abs=0.5)


def test_a_failed_job_is_tried_again_with_patience_until_its_limit(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", backoff_limit=2)
    starts = []
    for attempt in (1, 2, 3):
        world.go_on(until=lambda: bool(world.machine.running("a")))
        starts.append(world.machine.now)
        world.machine.end(f"a/{attempt}/worker-0", 1)
        world.settle()
    assert world.state("a") == "failed"
    assert world.cluster.job("a").exit_code == 1
    assert world.cluster.job("a").restarts == 2
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([1, 2], abs=0.3)


def test_a_job_that_waits_for_its_next_attempt_lets_others_go_first(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a")
    world.submit("b", 3)
    world.settle()
    world.machine.end("a/1/worker-0", 1)
    world.settle()
    assert world.state("b") == "running"
    assert "waits 1 s before it is tried again" in world.cluster.job("a").reason
    world.go_on()
    assert (world.state("a"), world.state("b")) == ("completed", "completed")


def test_exit_codes_of_the_machine_are_retried_and_others_are_not(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", restart=RestartPolicy.EXIT_CODE)
    world.submit("b", restart=RestartPolicy.EXIT_CODE)
    world.settle()
    world.machine.end("a/1/worker-0", 137)
    world.machine.end("b/1/worker-0", 2)
    world.go_on()
    assert (world.state("a"), world.state("b")) == ("completed", "failed")


def test_an_attempt_whose_end_nobody_saw_begins_again_though_its_policy_is_never(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", restart=RestartPolicy.NEVER)
    world.settle()
    world.machine.lose("a/1/worker-0")
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2
    assert world.machine.most_at_once["a"] == 1


def test_whoever_is_asked_to_leave_keeps_its_place_until_it_is_gone(make: Callable[..., World]) -> None:
    world = make(1, policy="fifo")
    world.submit("low", priority=1)
    world.settle()
    world.machine.is_stubborn = True
    world.submit("high", priority=0)
    world.settle()
    assert world.state("low") == "stopping"
    assert world.machine.running("high") == []
    assert "its place is being cleared" in world.cluster.job("high").reason
    world.machine.end("low/1/worker-0", 143, was_asked=True, has_saved=True)
    world.settle()
    assert world.machine.running("high") == ["high/1/worker-0"]
    assert world.state("low") == "waiting"
    assert world.cluster.job("low").lost_seconds == 0
    assert "saved" in world.kinds("low")


def test_work_that_was_not_saved_is_counted_as_lost(make: Callable[..., World]) -> None:
    world = make(1, policy="fifo")
    world.machine.saves = False
    world.submit("low", 100, priority=1)
    world.go_on(20)
    world.submit("high", priority=0)
    world.settle()
    assert world.cluster.job("low").lost_seconds == pytest.approx(20, abs=0.5)
    assert "lost" in world.kinds("low")


def test_a_job_resized_by_restart_never_has_two_attempts_at_once(make: Callable[..., World]) -> None:
    world = make(2)
    world.submit("a", 100, (1, 2))
    world.go_on(5)
    assert world.cluster.job("a").workers == 2
    world.submit("b", 5)
    world.go_on(2)
    assert world.cluster.job("a").workers == 1
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 3
    assert world.machine.most_at_once == {"a": 1, "b": 1}


def test_an_elastic_job_grows_and_shrinks_without_a_new_attempt(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-1"]
    world.submit("b", 5)
    world.settle()
    assert len(world.machine.running("a")) == 1
    world.go_on(7)
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert (world.folder / "jobs" / "a" / "world.json").read_text().count('"rank"') == 2
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 1


def test_an_elastic_job_goes_on_without_a_worker_that_died(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    world.machine.end("a/1/worker-0", 1)
    world.go_on(2)
    assert world.machine.running("a") == ["a/1/worker-1", "a/1/worker-2"]
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").restarts == 0


def test_parameter_servers_are_stopped_last_and_their_end_is_no_failure(make: Callable[..., World]) -> None:
    world = make(4)
    ps = ReplicaSpec("ps", 1, ("true",), cpus=MILLI)
    world.submit("tf", 10, (2, 2), kind="TFJob", others=(ps,))
    world.settle()
    world.machine.work.pop("tf")
    world.machine.end("tf/1/worker-1", 0)
    world.settle()
    assert world.state("tf") == "running"
    world.machine.end("tf/1/worker-0", 0)
    world.settle()
    assert world.machine.asked == ["tf/1/ps-0"]
    assert world.state("tf") == "completed"


def test_one_failed_worker_of_a_gang_ends_the_attempt_of_all(make: Callable[..., World]) -> None:
    world = make(2)
    world.submit("a", 20, (2, 2))
    world.settle()
    world.machine.end("a/1/worker-1", 1)
    world.settle()
    assert world.machine.running("a") == []
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2


def test_a_cpu_job_moves_in_place_and_by_checkpoint_on_request(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", 100)
    world.settle()
    world.cluster.migrate("a", "node1")
    world.settle()
    view = world.cluster.job("a")
    assert (view.nodes, view.attempt, view.moves) == (["node1"], 1, 1)
    assert world.machine.groups == {"a.1.worker-0": "node1"}
    world.cluster.migrate("a", "node0", by_checkpoint=True)
    world.settle()
    view = world.cluster.job("a")
    assert (view.nodes, view.attempt, view.moves, view.lost_seconds) == (["node0"], 2, 2, 0)


def test_a_move_that_the_machine_refuses_is_made_by_checkpoint(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(1, 1)
    world.submit("a", 100)
    world.settle()

    def refuse(*_: object) -> None:
        raise OSError("no such control")

    monkeypatch.setattr(world.at.backend.means.groups, "move", refuse)
    world.cluster.migrate("a", "node1")
    world.settle()
    view = world.cluster.job("a")
    assert (view.nodes, view.attempt, view.lost_seconds) == (["node1"], 2, 0)


def test_a_job_with_a_device_moves_by_checkpoint(make: Callable[..., World]) -> None:
    world = make(1, 1, devices=1)
    world.submit("a", 100, devices=MILLI)
    world.settle()
    first = world.machine.processes["a/1/worker-0"].intent.env["CUDA_VISIBLE_DEVICES"]
    world.cluster.migrate("a", "node1")
    world.settle()
    assert world.cluster.job("a").attempt == 2
    assert (first, world.machine.processes["a/2/worker-0"].intent.env["CUDA_VISIBLE_DEVICES"]) == ("0", "1")


def test_a_device_is_not_given_to_two_while_one_is_leaving(make: Callable[..., World]) -> None:
    world = make(4, devices=1, policy="fifo")
    world.submit("low", priority=1, devices=MILLI)
    world.settle()
    world.machine.is_stubborn = True
    world.submit("high", priority=0, devices=MILLI)
    world.settle()
    assert world.machine.running("high") == []
    world.machine.end("low/1/worker-0", 143, was_asked=True, has_saved=True)
    world.settle()
    assert world.machine.running("high") == ["high/1/worker-0"]


def test_a_drained_node_is_left_by_all_and_a_cordoned_one_by_nobody(make: Callable[..., World]) -> None:
    world = make(2, 1)
    for name in ("a", "b", "c"):
        world.submit(name, 100)
    world.settle()
    on_first = sorted(name for name in "abc" if world.cluster.job(name).nodes == ["node0"])
    assert world.cluster.cordon("node0", is_open=False).state == "cordoned"
    world.settle()
    assert sorted(name for name in "abc" if world.cluster.job(name).nodes == ["node0"]) == on_first
    world.cluster.cordon("node0", is_open=False, drain=True)
    world.settle()
    assert world.cluster.nodes()[0].jobs == []
    assert world.cluster.nodes()[0].state == "cordoned"
    assert sorted(world.state(name) for name in "abc") == ["running", "waiting", "waiting"]
    world.cluster.cordon("node0", is_open=True)
    world.settle()
    assert [world.state(name) for name in "abc"] == ["running"] * 3


def test_shares_are_put_into_force_on_every_replica(make: Callable[..., World]) -> None:
    world = make(1, is_shared=True, share="finish")
    for name in ("long", "short"):
        world.submit(name, 1000)
    world.settle()
    for name, left in (("long", 900), ("short", 100)):
        job = world.at.backend.book.find(name)
        for step in (1000 - left - 10, 1000 - left):
            world.machine.now += 1
            job.record.cpu_seconds += 10
            world.at.backend.watching.tell(job, [Told(world.machine.now, step, 1000, {"loss": 1.0})])
    world.at.backend.wake()
    world.settle()
    assert world.machine.shares["short.1.worker-0"] > 1 > world.machine.shares["long.1.worker-0"]


def test_a_job_is_deleted_when_all_of_it_is_gone_and_its_name_is_free_again(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", 100)
    world.settle()
    (world.folder / "jobs" / "a" / "checkpoint" / "model").write_text("old")
    assert world.cluster.delete(["a"])[0].state == "deleting"
    world.settle()
    assert world.cluster.jobs() == []
    world.submit("a")
    world.settle()
    assert list((world.folder / "jobs" / "a" / "checkpoint").iterdir()) == []
    world.go_on()
    assert world.state("a") == "completed"
    world.cluster.delete(["a"])
    assert world.cluster.jobs() == []


def test_deleting_asks_for_all_names_to_exist(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("alpha", 100)
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        world.cluster.delete(["alpha", "alpah"])
    assert world.state("alpha") == "waiting"


def test_a_job_past_its_deadline_fails_and_one_past_its_ttl_is_forgotten(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("slow", 100, deadline_seconds=5.0)
    world.submit("quick", 2, ttl_seconds=3.0)
    world.go_on(4)
    assert world.state("quick") == "completed"
    world.go_on(20)
    assert [view.name for view in world.cluster.jobs()] == ["slow"]
    assert world.state("slow") == "failed"
    assert "longer than the 5 s" in world.cluster.job("slow").reason


def test_scaling_changes_what_a_job_may_have(make: Callable[..., World]) -> None:
    world = make(4)
    world.submit("a", 1000, (1, 1))
    world.settle()
    world.cluster.scale("a", None, 3)
    world.settle()
    assert world.cluster.job("a").workers == 3
    world.cluster.scale("a", 1, 2)
    world.settle()
    assert world.cluster.job("a").workers == 2
    with pytest.raises(UserError, match="not possible"):
        world.cluster.scale("a", 3, 2)
    with pytest.raises(UserError, match="whole cluster has room for 4"):
        world.cluster.scale("a", 9, 9)


def test_what_the_machine_refuses_is_tried_again(make: Callable[..., World]) -> None:
    world = make(1)
    world.machine.refuses = "no processes left"
    world.submit("a")
    world.settle()
    assert world.state("a") == "waiting"
    assert "trouble" in world.kinds("a")
    world.machine.refuses = ""
    world.go_on()
    assert world.state("a") == "completed"


def test_after_a_crash_everything_is_found_again(make: Callable[..., World]) -> None:
    world = make(1, 1)
    for name in "abc":
        world.submit(name, 30)
    world.go_on(5)
    ran = {name: world.cluster.job(name).ran_seconds for name in "abc"}
    world.crash()
    assert [world.state(name) for name in "abc"] == ["running", "running", "waiting"]
    assert {name: world.cluster.job(name).ran_seconds for name in "abc"} == pytest.approx(ran)
    world.machine.end("a/1/worker-0", 0)
    world.crash()
    assert world.state("a") == "completed"
    world.go_on()
    assert [world.state(name) for name in "abc"] == ["completed"] * 3
    assert world.machine.most_at_once == {"a": 1, "b": 1, "c": 1}
    assert [world.cluster.job(name).attempt for name in "abc"] == [1, 1, 1]


def test_a_stop_that_was_written_down_but_not_asked_for_is_asked_for_after_a_crash(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", 100)
    world.settle()
    attempt = world.at.backend.book.find("a").record.attempt
    assert attempt is not None
    attempt.stopping = "it was about to be asked"
    world.at.backend.book.save_later(world.at.backend.book.find("a"))
    world.crash()
    world.settle()
    assert world.machine.asked == ["a/1/worker-0"]
    world.go_on()
    assert world.state("a") == "completed"


def test_a_newcomer_that_a_crash_kept_from_starting_costs_the_others_nothing(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    del world.machine.processes["a/1/worker-1"]
    world.crash()
    world.settle()
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert world.cluster.job("a").attempt == 1
    assert "worker-1" not in (world.folder / "jobs" / "a" / "world.json").read_text()


def test_what_could_not_be_asked_is_asked_again(make: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(1)
    world.submit("a", 100)
    world.settle()

    def refuse(*_: object) -> None:
        raise Retry("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.machine, "stop", refuse)
        world.cluster.cordon("node0", is_open=False, drain=True)
        world.settle()
    assert world.state("a") == "stopping"
    world.go_on(3)
    assert world.state("a") == "waiting"


def test_an_intention_without_a_process_is_voided_and_begun_anew(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", 5)
    world.settle()
    del world.machine.processes["a/1/worker-0"]  # the daemon died between writing it down and asking for it
    world.crash()
    world.go_on()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2
    assert world.cluster.job("a").restarts == 0


def test_a_daemon_that_comes_back_with_other_nodes_moves_its_jobs_there(make: Callable[..., World]) -> None:
    world = make(1, 1)
    world.submit("a", 30)
    world.submit("b", 30)
    world.go_on(3)
    world.slices = some_slices(1)
    world.crash()
    world.go_on()
    assert (world.state("a"), world.state("b")) == ("completed", "completed")
    assert world.machine.most_at_once == {"a": 1, "b": 1}


def test_growth_and_progress_survive_a_crash(make: Callable[..., World]) -> None:
    world = make(1)
    world.submit("a", 1000)
    world.settle()
    job = world.at.backend.book.find("a")
    for step in range(200):
        world.machine.now += 2
        loss = 1.0 if step > 40 else 3.0 - 0.05 * step
        world.cluster.report("a", step, 500, {"loss": loss})
    assert job.course is not None
    before = world.cluster.job("a")
    assert before.growth == "converged"
    world.crash()
    after = world.cluster.job("a")
    assert (after.step, after.total, after.value, after.growth) == (199, 500, 1.0, "converged")
    assert len(world.cluster.history("a")) == 200


def test_folders_that_no_job_owns_are_cleared(make: Callable[..., World]) -> None:
    world = make(1)
    stranger = world.folder / "jobs" / "stranger" / "1" / "worker-0"
    stranger.mkdir(parents=True)
    world.crash()
    assert not stranger.exists()


def test_a_machine_without_room_for_a_job_refuses_it_in_a_sentence(make: Callable[..., World]) -> None:
    world = make(1, 1)
    with pytest.raises(UserError, match="more than any node has"):
        world.submit("wide", cpus=2 * MILLI)
    with pytest.raises(UserError, match="whole cluster has room for 2"):
        world.submit("many", 1, (3, 3))
    assert world.cluster.jobs() == []


def test_the_machine_that_was_faked_keeps_its_own_rules(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    assert machine.wait(None) is None
    assert machine.wait(2.0) == set()
    assert machine.now == 1002.0
