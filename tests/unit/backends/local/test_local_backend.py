"""The local backend above a machine that is not there: what becomes of jobs, round by round, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from sterna.control.progress_tracker import ProgressReport
from sterna.errors import Retry, UserError
from sterna.model.job import JobSpec, ReplicaSpec, Resizing, RestartPolicy
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.snapshot import JobKey
from tests.fakes.local_cluster import LocalRun
from tests.fakes.local_cluster import make as make
from tests.fakes.machine import FakeMachine

MILLI = 1000


def test_jobs_run_one_after_the_other_where_there_is_one_core_each(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    for name in "abc":
        world.submit(name)
    world.run_for()
    assert [world.state(name) for name in "abc"] == ["completed"] * 3
    views = {view.name: view for view in world.cluster.jobs()}
    assert [views[name].waited_seconds for name in "abc"] == pytest.approx([0, 10, 20], abs=0.5)
    assert [views[name].ran_seconds for name in "abc"] == pytest.approx([10, 10, 10], abs=0.5)


def test_a_failed_job_is_tried_again_with_patience_until_its_limit(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("a", backoff_limit=2)
    starts = []
    for attempt in (1, 2, 3):
        world.run_for(until=lambda: bool(world.machine.running("a")))
        starts.append(world.machine.now)
        world.machine.end(f"a/{attempt}/worker-0", 1)
        world.settle()
    assert world.state("a") == "failed"
    assert world.cluster.job("a").exit_code == 1
    assert world.cluster.job("a").restarts == 2
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([1, 2], abs=0.3)


def test_a_job_that_waits_for_its_next_attempt_lets_others_go_first(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("a")
    world.submit("b", 3)
    world.settle()
    world.machine.end("a/1/worker-0", 1)
    world.settle()
    assert world.state("b") == "running"
    assert "waits 1 s before it is tried again" in world.cluster.job("a").reason
    world.run_for()
    assert (world.state("a"), world.state("b")) == ("completed", "completed")


def test_exit_codes_of_the_machine_are_retried_and_others_are_not(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", restart=RestartPolicy.EXIT_CODE)
    world.submit("b", restart=RestartPolicy.EXIT_CODE)
    world.settle()
    world.machine.end("a/1/worker-0", 137)
    world.machine.end("b/1/worker-0", 2)
    world.run_for()
    assert (world.state("a"), world.state("b")) == ("completed", "failed")


def test_an_attempt_whose_end_nobody_saw_begins_again_though_its_policy_is_never(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("a", restart=RestartPolicy.NEVER)
    world.settle()
    world.machine.lose("a/1/worker-0")
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2
    assert world.machine.most_at_once["a"] == 1


def test_whoever_is_asked_to_leave_keeps_its_place_until_it_is_gone(make: Callable[..., LocalRun]) -> None:
    world = make(1, policy="fifo")
    world.submit("low", priority=-1)
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


def test_work_that_was_not_saved_is_counted_as_lost(make: Callable[..., LocalRun]) -> None:
    world = make(1, policy="fifo")
    world.machine.saves = False
    world.submit("low", 100, priority=-1)
    world.run_for(20)
    world.submit("high", priority=0)
    world.settle()
    assert world.cluster.job("low").lost_seconds == pytest.approx(20, abs=0.5)
    assert "lost" in world.kinds("low")


def test_a_job_resized_by_restart_never_has_two_attempts_at_once(make: Callable[..., LocalRun]) -> None:
    world = make(2)
    world.submit("a", 100, (1, 2))
    world.run_for(5)
    assert world.cluster.job("a").workers == 2
    world.submit("b", 5)
    world.run_for(2)
    assert world.cluster.job("a").workers == 1
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 3
    assert world.machine.most_at_once == {"a": 1, "b": 1}


def test_an_elastic_job_grows_and_shrinks_without_a_new_attempt(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-1"]
    world.submit("b", 5)
    world.settle()
    assert len(world.machine.running("a")) == 1
    world.run_for(7)
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert (world.folder / "jobs" / "a" / "world.json").read_text().count('"rank"') == 2
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 1


def test_an_elastic_job_goes_on_without_a_worker_that_died(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    world.settle()
    world.machine.end("a/1/worker-0", 1)
    world.run_for(2)
    assert world.machine.running("a") == ["a/1/worker-1", "a/1/worker-2"]
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").restarts == 0


def test_torchrun_goes_on_without_an_agent_that_died_but_not_without_the_first(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=Resizing.TORCHRUN)
    world.settle()
    world.machine.end("a/1/worker-1", 1)
    world.settle()
    assert world.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    world.machine.end("a/1/worker-0", 1)
    world.settle()
    assert world.machine.running("a") == []
    world.run_for()
    assert (world.state("a"), world.cluster.job("a").attempt) == ("completed", 2)


def test_a_newcomer_has_as_much_time_to_begin_as_those_who_began_with_the_job(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("b", 20)
    world.submit("a", 500, (1, 2), resizing=Resizing.TORCHRUN)
    world.run_for(19)
    world.machine.is_slow = True
    world.run_for(10)
    (late,) = [each.name for each in world.cluster.job("a").replicas if each.state == "starting"]
    world.machine.is_slow = False
    world.run_for(2)
    assert world.machine.running("a") == ["a/1/worker-0", f"a/1/{late}"]
    assert world.cluster.job("a").attempt == 1


def test_an_mpi_job_moves_by_checkpoint_because_its_launcher_starts_the_workers(make: Callable[..., LocalRun]) -> None:
    world = make(2, 2)
    world.machine.work["a"] = 100.0
    launcher = ReplicaSpec("launcher", 1, ("true",))
    replicas = (launcher, ReplicaSpec("worker", 2, (), cpus=MILLI))
    world.cluster.create([JobSpec("a", "MPIJob", replicas, 2, 2, 2)])
    world.settle()
    (node,) = world.cluster.job("a").nodes
    other = "node1" if node == "node0" else "node0"
    world.cluster.migrate("a", other)
    world.settle()
    assert world.machine.asked == ["a/1/launcher-0"]
    assert world.machine.running("a") == ["a/2/launcher-0"]
    assert world.cluster.job("a").nodes == [other]


def test_a_chief_saves_before_those_who_compute_for_it_are_asked(make: Callable[..., LocalRun]) -> None:
    world = make(4, policy="fifo")
    others = (ReplicaSpec("chief", 1, ("true",)), ReplicaSpec("ps", 1, ("true",)))
    world.submit("tf", 100, (2, 2), kind="TFJob", priority=-1, others=others)
    world.settle()
    world.machine.is_stubborn = True
    world.cluster.delete(["tf"])
    world.settle()
    assert world.machine.asked == ["tf/1/chief-0"]
    world.machine.is_stubborn = False
    world.machine.end("tf/1/chief-0", 143, was_asked=True, has_saved=True)
    world.settle()
    assert world.machine.asked == ["tf/1/chief-0", "tf/1/worker-0", "tf/1/worker-1", "tf/1/ps-0"]


@pytest.mark.parametrize("resizing", [Resizing.IN_PLACE, Resizing.TORCHRUN])
@pytest.mark.parametrize("is_asked_first", [True, False])
def test_a_worker_that_is_resized_away_and_ends_by_itself_is_no_failure(
    make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch, resizing: Resizing, is_asked_first: bool
) -> None:
    world = make(1, 1)
    world.submit("a", 100, (1, 2), resizing=resizing, restart=RestartPolicy.NEVER)
    world.settle()
    world.machine.is_stubborn = True
    if not is_asked_first:
        monkeypatch.setattr(world.machine, "stop", refuses)
    world.submit("b", 5)
    world.settle()
    (leaving,) = [each.name for each in world.cluster.job("a").replicas if each.state == "stopping"]
    world.machine.end(f"a/1/{leaving}", 143)  # it saw that it is no member any more
    monkeypatch.undo()
    world.machine.is_stubborn = False
    world.settle()
    assert world.state("a") == "running"
    assert not {"ended", "restarting"} & set(world.kinds("a"))
    world.run_for()
    assert (world.state("a"), world.cluster.job("a").attempt, world.cluster.job("a").restarts) == ("completed", 1, 0)


def refuses(*_: object) -> None:
    raise Retry("the disk is full")


def test_a_share_that_changes_is_told_and_a_small_change_is_not(make: Callable[..., LocalRun]) -> None:
    world = make(1, is_shared=True)
    world.submit("a", 100)
    world.settle()
    job = world.at.backend.store.find("a")
    for cpu_share in (0.25, 0.25, 0.26, 1.0):
        action = Action(
            ActionKind.SET_CPU_SHARE, JobKey(job.key), 0, job.assignment, job.assignment, cpu_share=cpu_share
        )
        assert world.at.backend.apply(Decision(Plan([action]))) == [Outcome.APPLIED]
        assert world.machine.shares["a.1.worker-0"] == cpu_share
    told = [event.sentence for event in world.cluster.events("a") if event.kind == "shared"]
    assert told == [f"gets {cpu_share} equal share of the CPU of its node." for cpu_share in ("0.25 times an", "an")]


def test_a_share_that_is_put_into_force_again_after_a_crash_is_nothing_new(make: Callable[..., LocalRun]) -> None:
    world = make(1, is_shared=True)
    world.submit("a", 100)
    world.settle()
    world.crash()
    world.settle()
    assert world.machine.shares == {"a.1.worker-0": 1.0}
    assert "shared" not in world.kinds("a")


def test_parameter_servers_are_stopped_last_and_their_end_is_no_failure(make: Callable[..., LocalRun]) -> None:
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


def test_one_failed_worker_of_a_gang_ends_the_attempt_of_all(make: Callable[..., LocalRun]) -> None:
    world = make(2)
    world.submit("a", 20, (2, 2))
    world.settle()
    world.machine.end("a/1/worker-1", 1)
    world.settle()
    assert world.machine.running("a") == []
    world.run_for()
    assert world.state("a") == "completed"
    assert world.cluster.job("a").attempt == 2


def test_a_cpu_job_moves_in_place_and_by_checkpoint_on_request(make: Callable[..., LocalRun]) -> None:
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
    make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(1, 1)
    world.submit("a", 100)
    world.settle()

    def refuse(*_: object) -> None:
        raise OSError("no such control")

    monkeypatch.setattr(world.at.backend.deps.groups, "move", refuse)
    world.cluster.migrate("a", "node1")
    world.settle()
    view = world.cluster.job("a")
    assert (view.nodes, view.attempt, view.lost_seconds) == (["node1"], 2, 0)


def test_a_job_with_a_device_moves_by_checkpoint(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1, devices=1)
    world.submit("a", 100, devices=MILLI)
    world.settle()
    first = world.machine.processes["a/1/worker-0"].launch_spec.env["CUDA_VISIBLE_DEVICES"]
    world.cluster.migrate("a", "node1")
    world.settle()
    assert world.cluster.job("a").attempt == 2
    assert (first, world.machine.processes["a/2/worker-0"].launch_spec.env["CUDA_VISIBLE_DEVICES"]) == ("0", "1")


def test_a_device_is_not_given_to_two_while_one_is_leaving(make: Callable[..., LocalRun]) -> None:
    world = make(4, devices=1, policy="fifo")
    world.submit("low", priority=-1, devices=MILLI)
    world.settle()
    world.machine.is_stubborn = True
    world.submit("high", priority=0, devices=MILLI)
    world.settle()
    assert world.machine.running("high") == []
    world.machine.end("low/1/worker-0", 143, was_asked=True, has_saved=True)
    world.settle()
    assert world.machine.running("high") == ["high/1/worker-0"]


def test_a_drained_node_is_left_by_all_and_a_cordoned_one_by_nobody(make: Callable[..., LocalRun]) -> None:
    world = make(2, 1)
    for name in ("a", "b", "c"):
        world.submit(name, 100)
    world.settle()
    on_first = sorted(name for name in "abc" if world.cluster.job(name).nodes == ["node0"])
    assert world.cluster.cordon("node0").state == "cordoned"
    world.settle()
    assert sorted(name for name in "abc" if world.cluster.job(name).nodes == ["node0"]) == on_first
    world.cluster.drain("node0")
    world.settle()
    assert world.cluster.nodes()[0].jobs == []
    assert world.cluster.nodes()[0].state == "cordoned"
    assert sorted(world.state(name) for name in "abc") == ["running", "waiting", "waiting"]
    world.cluster.uncordon("node0")
    world.settle()
    assert [world.state(name) for name in "abc"] == ["running"] * 3


def test_shares_are_put_into_force_on_every_replica(make: Callable[..., LocalRun]) -> None:
    world = make(1, is_shared=True, cpu_share="finish")
    for name in ("long", "short"):
        world.submit(name, 1000)
    world.settle()
    for name, left in (("long", 900), ("short", 100)):
        job = world.at.backend.store.find(name)
        for step in (1000 - left - 10, 1000 - left):
            world.machine.now += 1
            job.record.cpu_seconds += 10
            world.at.backend.watcher.add_reports(job, [ProgressReport(world.machine.now, step, 1000, {"loss": 1.0})])
    world.at.backend.wake()
    world.settle()
    assert world.machine.shares["short.1.worker-0"] > 1 > world.machine.shares["long.1.worker-0"]


def test_a_job_is_deleted_when_all_of_it_is_gone_and_its_name_is_free_again(make: Callable[..., LocalRun]) -> None:
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
    world.run_for()
    assert world.state("a") == "completed"
    world.cluster.delete(["a"])
    assert world.cluster.jobs() == []


def test_deleting_asks_for_all_names_to_exist(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.submit("alpha", 100)
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        world.cluster.delete(["alpha", "alpah"])
    assert world.state("alpha") == "waiting"


def test_a_job_past_its_deadline_fails_and_one_past_its_ttl_is_forgotten(make: Callable[..., LocalRun]) -> None:
    world = make(1, 1)
    world.submit("slow", 100, deadline_seconds=5.0)
    world.submit("quick", 2, ttl_seconds=3.0)
    world.run_for(4)
    assert world.state("quick") == "completed"
    world.run_for(20)
    assert [view.name for view in world.cluster.jobs()] == ["slow"]
    assert world.state("slow") == "failed"
    assert "longer than the 5 s" in world.cluster.job("slow").reason


def test_scaling_changes_what_a_job_may_have(make: Callable[..., LocalRun]) -> None:
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


def test_what_the_machine_refuses_is_tried_again(make: Callable[..., LocalRun]) -> None:
    world = make(1)
    world.machine.refuses = "no processes left"
    world.submit("a")
    world.settle()
    assert world.state("a") == "waiting"
    assert "trouble" in world.kinds("a")
    world.machine.refuses = ""
    world.run_for()
    assert world.state("a") == "completed"


def test_a_machine_without_room_for_a_job_refuses_it_in_a_sentence(make: Callable[..., LocalRun]) -> None:
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
