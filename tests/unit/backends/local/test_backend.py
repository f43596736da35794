"""The local backend on a fake machine with a virtual clock."""

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


def test_jobs_run_in_turn_on_one_core(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    for name in "abc":
        local.submit(name)
    local.run_for()
    assert [local.state(name) for name in "abc"] == ["completed"] * 3
    views = {view.name: view for view in local.cluster.jobs()}
    assert [views[name].waited_seconds for name in "abc"] == pytest.approx([0, 10, 20], abs=0.5)
    assert [views[name].ran_seconds for name in "abc"] == pytest.approx([10, 10, 10], abs=0.5)


def test_failed_job_is_retried_with_back_off_up_to_its_limit(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a", backoff_limit=2)
    starts = []
    for attempt in (1, 2, 3):
        local.run_for(until=lambda: bool(local.machine.running("a")))
        starts.append(local.machine.now)
        local.machine.end(f"a/{attempt}/worker-0", 1)
        local.settle()
    assert local.state("a") == "failed"
    assert local.cluster.job("a").exit_code == 1
    assert local.cluster.job("a").restarts == 2
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([1, 2], abs=0.3)


def test_job_in_back_off_does_not_block_other_jobs(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a")
    local.submit("b", 3)
    local.settle()
    local.machine.end("a/1/worker-0", 1)
    local.settle()
    assert local.state("b") == "running"
    assert "waits: back-off until" in local.cluster.job("a").reason
    local.run_for()
    assert (local.state("a"), local.state("b")) == ("completed", "completed")


def test_exit_code_policy_retries_signals_only(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", restart=RestartPolicy.EXIT_CODE)
    local.submit("b", restart=RestartPolicy.EXIT_CODE)
    local.settle()
    local.machine.end("a/1/worker-0", 137)
    local.machine.end("b/1/worker-0", 2)
    local.run_for()
    assert (local.state("a"), local.state("b")) == ("completed", "failed")


def test_attempt_without_an_exit_record_restarts_despite_policy_never(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a", restart=RestartPolicy.NEVER)
    local.settle()
    local.machine.lose("a/1/worker-0")
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").attempt == 2
    assert local.machine.most_at_once["a"] == 1


def test_stopping_job_keeps_its_node_until_its_process_exits(make: Callable[..., LocalRun]) -> None:
    local = make(1, policy="fifo")
    local.submit("low", priority=-1)
    local.settle()
    local.machine.is_stubborn = True
    local.submit("high", priority=0)
    local.settle()
    assert local.state("low") == "stopping"
    assert local.machine.running("high") == []
    assert "its place is being cleared" in local.cluster.job("high").reason
    local.machine.end("low/1/worker-0", 143, was_asked=True, has_saved=True)
    local.settle()
    assert local.machine.running("high") == ["high/1/worker-0"]
    assert local.state("low") == "waiting"
    assert local.cluster.job("low").lost_seconds == 0
    assert "saved" in local.kinds("low")


def test_unsaved_work_is_counted_as_lost(make: Callable[..., LocalRun]) -> None:
    local = make(1, policy="fifo")
    local.machine.saves = False
    local.submit("low", 100, priority=-1)
    local.run_for(20)
    local.submit("high", priority=0)
    local.settle()
    assert local.cluster.job("low").lost_seconds == pytest.approx(20, abs=0.5)
    assert "lost" in local.kinds("low")


def test_a_job_resized_by_restart_never_has_two_attempts_at_once(make: Callable[..., LocalRun]) -> None:
    local = make(2)
    local.submit("a", 100, (1, 2))
    local.run_for(5)
    assert local.cluster.job("a").workers == 2
    local.submit("b", 5)
    local.run_for(2)
    assert local.cluster.job("a").workers == 1
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").attempt == 3
    assert local.machine.most_at_once == {"a": 1, "b": 1}


def test_an_elastic_job_grows_and_shrinks_without_a_new_attempt(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    local.settle()
    assert local.machine.running("a") == ["a/1/worker-0", "a/1/worker-1"]
    local.submit("b", 5)
    local.settle()
    assert len(local.machine.running("a")) == 1
    local.run_for(7)
    assert local.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    assert (local.folder / "jobs" / "a" / "world.json").read_text().count('"rank"') == 2
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").attempt == 1


def test_an_elastic_job_goes_on_without_a_worker_that_died(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 100, (1, 2), resizing=Resizing.IN_PLACE)
    local.settle()
    local.machine.end("a/1/worker-0", 1)
    local.run_for(2)
    assert local.machine.running("a") == ["a/1/worker-1", "a/1/worker-2"]
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").restarts == 0


def test_torchrun_goes_on_without_an_agent_that_died_but_not_without_the_first(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 100, (1, 2), resizing=Resizing.TORCHRUN)
    local.settle()
    local.machine.end("a/1/worker-1", 1)
    local.settle()
    assert local.machine.running("a") == ["a/1/worker-0", "a/1/worker-2"]
    local.machine.end("a/1/worker-0", 1)
    local.settle()
    assert local.machine.running("a") == []
    local.run_for()
    assert (local.state("a"), local.cluster.job("a").attempt) == ("completed", 2)


def test_added_worker_has_the_full_start_timeout(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("b", 20)
    local.submit("a", 500, (1, 2), resizing=Resizing.TORCHRUN)
    local.run_for(19)
    local.machine.is_slow = True
    local.run_for(10)
    (late,) = [each.name for each in local.cluster.job("a").replicas if each.state == "starting"]
    local.machine.is_slow = False
    local.run_for(2)
    assert local.machine.running("a") == ["a/1/worker-0", f"a/1/{late}"]
    assert local.cluster.job("a").attempt == 1


def test_an_mpi_job_moves_by_checkpoint_because_its_launcher_starts_the_workers(make: Callable[..., LocalRun]) -> None:
    local = make(2, 2)
    local.machine.work["a"] = 100.0
    launcher = ReplicaSpec("launcher", 1, ("true",))
    replicas = (launcher, ReplicaSpec("worker", 2, (), cpus=MILLI))
    local.cluster.create([JobSpec("a", "MPIJob", replicas, 2, 2, 2)])
    local.settle()
    (node,) = local.cluster.job("a").nodes
    other = "node1" if node == "node0" else "node0"
    local.cluster.migrate("a", other)
    local.settle()
    assert local.machine.asked == ["a/1/launcher-0"]
    assert local.machine.running("a") == ["a/2/launcher-0"]
    assert local.cluster.job("a").nodes == [other]


def test_chief_stops_before_workers_and_parameter_servers(make: Callable[..., LocalRun]) -> None:
    local = make(4, policy="fifo")
    others = (ReplicaSpec("chief", 1, ("true",)), ReplicaSpec("ps", 1, ("true",)))
    local.submit("tf", 100, (2, 2), kind="TFJob", priority=-1, others=others)
    local.settle()
    local.machine.is_stubborn = True
    local.cluster.delete(["tf"])
    local.settle()
    assert local.machine.asked == ["tf/1/chief-0"]
    local.machine.is_stubborn = False
    local.machine.end("tf/1/chief-0", 143, was_asked=True, has_saved=True)
    local.settle()
    assert local.machine.asked == ["tf/1/chief-0", "tf/1/worker-0", "tf/1/worker-1", "tf/1/ps-0"]


@pytest.mark.parametrize("resizing", [Resizing.IN_PLACE, Resizing.TORCHRUN])
@pytest.mark.parametrize("is_asked_first", [True, False])
def test_worker_that_exits_while_it_is_removed_is_not_a_failure(
    make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch, resizing: Resizing, is_asked_first: bool
) -> None:
    local = make(1, 1)
    local.submit("a", 100, (1, 2), resizing=resizing, restart=RestartPolicy.NEVER)
    local.settle()
    local.machine.is_stubborn = True
    if not is_asked_first:
        monkeypatch.setattr(local.machine, "stop", refuses)
    local.submit("b", 5)
    local.settle()
    (leaving,) = [each.name for each in local.cluster.job("a").replicas if each.state == "stopping"]
    local.machine.end(f"a/1/{leaving}", 143)  # the worker is no longer in the member list and exits
    monkeypatch.undo()
    local.machine.is_stubborn = False
    local.settle()
    assert local.state("a") == "running"
    assert not {"ended", "restarting"} & set(local.kinds("a"))
    local.run_for()
    assert (local.state("a"), local.cluster.job("a").attempt, local.cluster.job("a").restarts) == ("completed", 1, 0)


def refuses(*_: object) -> None:
    raise Retry("the disk is full")


def test_only_large_cpu_share_changes_emit_an_event(make: Callable[..., LocalRun]) -> None:
    local = make(1, is_shared=True)
    local.submit("a", 100)
    local.settle()
    job = local.at.backend.store.find("a")
    for cpu_share in (0.25, 0.25, 0.26, 1.0):
        action = Action(
            ActionKind.SET_CPU_SHARE, JobKey(job.key), 0, job.assignment, job.assignment, cpu_share=cpu_share
        )
        assert local.at.backend.apply(Decision(Plan([action]))) == [Outcome.APPLIED]
        assert local.machine.cpu_shares["a.1.worker-0"] == cpu_share
    events = [event.sentence for event in local.cluster.events("a") if event.kind == "shared"]
    assert events == [f"gets {cpu_share} equal share of the CPU of its node." for cpu_share in ("0.25 times an", "an")]


def test_restoring_a_cpu_share_after_a_crash_emits_no_event(make: Callable[..., LocalRun]) -> None:
    local = make(1, is_shared=True)
    local.submit("a", 100)
    local.settle()
    local.crash()
    local.settle()
    assert local.machine.cpu_shares == {"a.1.worker-0": 1.0}
    assert "shared" not in local.kinds("a")


def test_parameter_servers_stop_last_and_do_not_fail_the_job(make: Callable[..., LocalRun]) -> None:
    local = make(4)
    ps = ReplicaSpec("ps", 1, ("true",), cpus=MILLI)
    local.submit("tf", 10, (2, 2), kind="TFJob", others=(ps,))
    local.settle()
    local.machine.work.pop("tf")
    local.machine.end("tf/1/worker-1", 0)
    local.settle()
    assert local.state("tf") == "running"
    local.machine.end("tf/1/worker-0", 0)
    local.settle()
    assert local.machine.asked == ["tf/1/ps-0"]
    assert local.state("tf") == "completed"


def test_failed_worker_ends_the_attempt_of_its_gang(make: Callable[..., LocalRun]) -> None:
    local = make(2)
    local.submit("a", 20, (2, 2))
    local.settle()
    local.machine.end("a/1/worker-1", 1)
    local.settle()
    assert local.machine.running("a") == []
    local.run_for()
    assert local.state("a") == "completed"
    assert local.cluster.job("a").attempt == 2


def test_a_cpu_job_moves_in_place_and_by_checkpoint_on_request(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("a", 100)
    local.settle()
    local.cluster.migrate("a", "node1")
    local.settle()
    view = local.cluster.job("a")
    assert (view.nodes, view.attempt, view.moves) == (["node1"], 1, 1)
    assert local.machine.groups == {"a.1.worker-0": "node1"}
    local.cluster.migrate("a", "node0", by_checkpoint=True)
    local.settle()
    view = local.cluster.job("a")
    assert (view.nodes, view.attempt, view.moves, view.lost_seconds) == (["node0"], 2, 2, 0)


def test_failed_in_place_move_falls_back_to_a_checkpoint(
    make: Callable[..., LocalRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = make(1, 1)
    local.submit("a", 100)
    local.settle()

    def refuse(*_: object) -> None:
        raise OSError("no such control")

    monkeypatch.setattr(local.at.backend.deps.groups, "move", refuse)
    local.cluster.migrate("a", "node1")
    local.settle()
    view = local.cluster.job("a")
    assert (view.nodes, view.attempt, view.lost_seconds) == (["node1"], 2, 0)


def test_a_job_with_a_device_moves_by_checkpoint(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1, devices=1)
    local.submit("a", 100, devices=MILLI)
    local.settle()
    first = local.machine.processes["a/1/worker-0"].launch_spec.env["CUDA_VISIBLE_DEVICES"]
    local.cluster.migrate("a", "node1")
    local.settle()
    assert local.cluster.job("a").attempt == 2
    assert (first, local.machine.processes["a/2/worker-0"].launch_spec.env["CUDA_VISIBLE_DEVICES"]) == ("0", "1")


def test_device_is_not_reassigned_until_its_process_exits(make: Callable[..., LocalRun]) -> None:
    local = make(4, devices=1, policy="fifo")
    local.submit("low", priority=-1, devices=MILLI)
    local.settle()
    local.machine.is_stubborn = True
    local.submit("high", priority=0, devices=MILLI)
    local.settle()
    assert local.machine.running("high") == []
    local.machine.end("low/1/worker-0", 143, was_asked=True, has_saved=True)
    local.settle()
    assert local.machine.running("high") == ["high/1/worker-0"]


def test_drain_evicts_all_jobs_and_cordon_evicts_none(make: Callable[..., LocalRun]) -> None:
    local = make(2, 1)
    for name in ("a", "b", "c"):
        local.submit(name, 100)
    local.settle()
    on_first = sorted(name for name in "abc" if local.cluster.job(name).nodes == ["node0"])
    assert local.cluster.cordon("node0").state == "cordoned"
    local.settle()
    assert sorted(name for name in "abc" if local.cluster.job(name).nodes == ["node0"]) == on_first
    local.cluster.drain("node0")
    local.settle()
    assert local.cluster.nodes()[0].jobs == []
    assert local.cluster.nodes()[0].state == "cordoned"
    assert sorted(local.state(name) for name in "abc") == ["running", "waiting", "waiting"]
    local.cluster.uncordon("node0")
    local.settle()
    assert [local.state(name) for name in "abc"] == ["running"] * 3


def test_cpu_shares_are_applied_to_every_replica(make: Callable[..., LocalRun]) -> None:
    local = make(1, is_shared=True, cpu_share="finish")
    for name in ("long", "short"):
        local.submit(name, 1000)
    local.settle()
    for name, left in (("long", 900), ("short", 100)):
        job = local.at.backend.store.find(name)
        for step in (1000 - left - 10, 1000 - left):
            local.machine.now += 1
            job.record.cpu_seconds += 10
            local.at.backend.watcher.add_reports(job, [ProgressReport(local.machine.now, step, 1000, {"loss": 1.0})])
    local.at.backend.wake()
    local.settle()
    assert local.machine.cpu_shares["short.1.worker-0"] > 1 > local.machine.cpu_shares["long.1.worker-0"]


def test_deleted_job_frees_its_name_after_its_processes_exit(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    (local.folder / "jobs" / "a" / "checkpoint" / "model").write_text("old")
    assert local.cluster.delete(["a"])[0].state == "deleting"
    local.settle()
    assert local.cluster.jobs() == []
    local.submit("a")
    local.settle()
    assert list((local.folder / "jobs" / "a" / "checkpoint").iterdir()) == []
    local.run_for()
    assert local.state("a") == "completed"
    local.cluster.delete(["a"])
    assert local.cluster.jobs() == []


def test_delete_rejects_unknown_names(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.submit("alpha", 100)
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        local.cluster.delete(["alpha", "alpah"])
    assert local.state("alpha") == "waiting"


def test_deadline_fails_a_job_and_ttl_removes_it(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    local.submit("slow", 100, deadline_seconds=5.0)
    local.submit("quick", 2, ttl_seconds=3.0)
    local.run_for(4)
    assert local.state("quick") == "completed"
    local.run_for(20)
    assert [view.name for view in local.cluster.jobs()] == ["slow"]
    assert local.state("slow") == "failed"
    assert "longer than the 5 s" in local.cluster.job("slow").reason


def test_scale_changes_the_worker_limits(make: Callable[..., LocalRun]) -> None:
    local = make(4)
    local.submit("a", 1000, (1, 1))
    local.settle()
    local.cluster.scale("a", None, 3)
    local.settle()
    assert local.cluster.job("a").workers == 3
    local.cluster.scale("a", 1, 2)
    local.settle()
    assert local.cluster.job("a").workers == 2
    with pytest.raises(UserError, match="not possible"):
        local.cluster.scale("a", 3, 2)
    with pytest.raises(UserError, match="whole cluster has room for 4"):
        local.cluster.scale("a", 9, 9)


def test_failed_start_is_retried(make: Callable[..., LocalRun]) -> None:
    local = make(1)
    local.machine.refuses = "no processes left"
    local.submit("a")
    local.settle()
    assert local.state("a") == "waiting"
    assert "error" in local.kinds("a")
    local.machine.refuses = ""
    local.run_for()
    assert local.state("a") == "completed"


def test_job_larger_than_the_machine_is_rejected(make: Callable[..., LocalRun]) -> None:
    local = make(1, 1)
    with pytest.raises(UserError, match="more than any node has"):
        local.submit("wide", cpus=2 * MILLI)
    with pytest.raises(UserError, match="whole cluster has room for 2"):
        local.submit("many", 1, (3, 3))
    assert local.cluster.jobs() == []


def test_fake_machine_advances_only_its_virtual_clock(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    assert machine.wait(None) is None
    assert machine.wait(2.0) == set()
    assert machine.now == 1002.0
