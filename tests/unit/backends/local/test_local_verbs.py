"""What can be asked of a local cluster, and what it answers, above a machine that is not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sterna.backends.local.store.journal import StoredJournal, prune, write_journal
from sterna.control.journal import read_opening, read_rounds
from sterna.control.progress_tracker import ProgressReport
from sterna.control.round_loop import ChangedRounds, RoundLoop, RoundObserver
from sterna.control.specon_csv import HEADER, SpeconCsvFile
from sterna.errors import UserError
from sterna.model.job import JobSpec, ReplicaSpec
from sterna.service.cluster_service import ClusterService
from sterna.service.requests import RuleChanges
from sterna.service.updates import JobsUpdate
from sterna.wiring import make_rules
from tests.fakes.machine import FakeCluster, a_cluster, some_slices


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeCluster]:
    made = a_cluster(tmp_path, some_slices(1, 1))
    yield made
    made.database.close()


def a_spec(name: str, *command: str, workers: int = 1, **more: object) -> JobSpec:
    replica = ReplicaSpec("worker", workers, command or ("true",))
    return replace(JobSpec(name, "TrainingJob", (replica,), workers, workers, workers), **more)  # type: ignore[arg-type]


def decide(world: FakeCluster, observer: RoundObserver | None = None) -> None:
    RoundLoop(world.backend, make_rules("elastic-fifo", "stay"), () if observer is None else (observer,)).round()


def test_the_cluster_implements_all_verbs(world: FakeCluster) -> None:
    verbs: ClusterService = world.cluster
    assert verbs.jobs() == []
    assert [node.name for node in verbs.nodes()] == ["node0", "node1"]


def test_what_was_created_is_on_disk_when_it_is_acknowledged(world: FakeCluster) -> None:
    world.cluster.create([a_spec("a"), a_spec("b")])
    assert world.database.read("SELECT name FROM jobs ORDER BY name") == [("a",), ("b",)]


def test_of_several_jobs_all_are_created_or_none(world: FakeCluster) -> None:
    with pytest.raises(UserError, match="room for 2"):
        world.cluster.create([a_spec("a"), a_spec("b", workers=9)])
    with pytest.raises(UserError, match="'a' already"):
        world.cluster.create([a_spec("a"), a_spec("a")])
    assert world.cluster.jobs() == []
    assert world.database.read("SELECT name FROM jobs") == []
    assert world.cluster.create([a_spec("a")])[0].name == "a"


def test_the_same_key_again_answers_the_same_and_creates_nothing(world: FakeCluster) -> None:
    first = world.cluster.create([a_spec("a")], key="k")
    assert world.cluster.create([a_spec("a")], key="k") == first
    assert len(world.cluster.jobs()) == 1


def test_the_same_key_from_two_sides_at_once_creates_one_job(world: FakeCluster) -> None:
    answers: list[str] = []

    def ask() -> None:
        answers.append(world.cluster.create([a_spec("a")], key="k")[0].name)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["a"] * 8
    assert len(world.cluster.jobs()) == 1


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (a_spec("../up"), "cannot be the name"),
        (a_spec("a/b"), "cannot be the name"),
        (a_spec(".."), "cannot be the name"),
        (a_spec(""), "cannot be the name"),
        (a_spec("x" * 64), "cannot be the name"),
        (a_spec("a", "no-such-program"), "'no-such-program' was not found"),
        (a_spec("a", "/no/such/program"), "not a program"),
        (a_spec("a", minimum=3, maximum=2), "not possible"),
        (a_spec("a", minimum=0), "not possible"),
        (a_spec("a", request=5), "outside 1 to 1"),
        (replace(a_spec("a"), replicas=(ReplicaSpec("worker", 1, ()),)), "has no command"),
        (replace(a_spec("a"), replicas=(ReplicaSpec("../worker", 1, ("true",)),)), "no type of replica"),
        (
            replace(a_spec("a"), replicas=(ReplicaSpec("worker", 1, ("true",), working_dir="/no/such"),)),
            "no working folder",
        ),
        (replace(a_spec("a"), replicas=(ReplicaSpec("worker", 1, ("true",), cpus=2000),)), "more than any node has"),
        (replace(a_spec("a"), replicas=(ReplicaSpec("worker", 1, ("true",), devices=1000),)), "more than any node"),
    ],
)
def test_what_cannot_run_here_is_refused_in_a_sentence(world: FakeCluster, spec: JobSpec, says: str) -> None:
    with pytest.raises(UserError, match=says) as refusal:
        world.cluster.create([spec])
    assert str(refusal.value).endswith(".")
    assert world.cluster.jobs() == []


def test_what_does_not_exist_is_answered_with_the_nearest_name(world: FakeCluster) -> None:
    world.cluster.create([a_spec("training")])
    for ask in (world.cluster.job, world.cluster.explain, world.cluster.history, world.cluster.log):
        with pytest.raises(UserError, match="did you mean 'training'"):
            ask("trainin")
    with pytest.raises(UserError, match="did you mean 'node"):
        world.cluster.cordon("node")
    with pytest.raises(UserError, match="no node"):
        world.cluster.migrate("training", "elsewhere")


def test_a_waiting_job_cannot_be_moved_and_an_ended_one_not_changed(world: FakeCluster) -> None:
    world.cluster.create([a_spec("a")])
    with pytest.raises(UserError, match="does not run"):
        world.cluster.migrate("a", "node1")
    decide(world)
    with pytest.raises(UserError, match="is on node0 already"):
        world.cluster.migrate("a", "node0")
    world.cluster.create([a_spec("b")])
    decide(world)
    with pytest.raises(UserError, match="node1 has no room"):
        world.cluster.migrate("a", "node1")
    world.machine.end("a/1/worker-0", 0)
    world.backend.wait(world.machine.now + 1)
    with pytest.raises(UserError, match="has completed"):
        world.cluster.scale("a", 1, 2)


def test_events_are_told_from_a_number_on_and_by_job(world: FakeCluster) -> None:
    world.cluster.create([a_spec("a"), a_spec("b")])
    decide(world)
    events = world.cluster.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in world.cluster.events("a")] == ["submitted", "started"]
    assert world.cluster.events(after=events[-1].number) == []
    assert world.cluster.events(after=1, limit=1) == events[1:2]
    assert world.cluster.events(limit=2) == events[-2:]


def test_old_events_are_read_from_the_disk(world: FakeCluster) -> None:
    for number in range(30):
        world.backend.store.note("a", "noted", f"number {number}.")
    for _ in range(20):
        world.backend.store.events.popleft()
    assert len(world.cluster.events()) == 30
    assert [event.number for event in world.cluster.events("a", after=5, limit=3)] == [6, 7, 8]


def test_watch_yields_everything_once_and_then_each_change(world: FakeCluster) -> None:
    updates = world.cluster.watch(("jobs",))
    assert next(updates) == JobsUpdate([], [])
    for name in ("a", "b"):
        world.cluster.create([a_spec(name)])
        update = next(updates)
        assert isinstance(update, JobsUpdate)
        assert name in [job.name for job in update.changed]
    world.backend.store.close()
    assert list(updates) == []


def test_reports_from_outside_count_like_any_other(world: FakeCluster) -> None:
    world.cluster.create([a_spec("a")])
    decide(world)
    for step in range(5):
        world.machine.now += 2
        world.cluster.report("a", step, 100, {"loss": 5.0 - step})
    view = world.cluster.job("a")
    assert (view.step, view.total, view.metric, view.value) == (4, 100, "loss", 1.0)
    assert [report.metrics["loss"] for report in world.cluster.history("a")] == [5, 4, 3, 2, 1]


def test_rules_can_be_changed_while_it_runs_and_are_kept(world: FakeCluster) -> None:
    view = world.cluster.set_rules(RuleChanges(policy="dragon"))
    assert (view.policy, view.placement) == ("dragon", "pack")
    assert world.cluster.set_rules(RuleChanges(rate_limit_seconds=2.5)).rate_limit_seconds == 2.5
    assert world.backend.store.setting("rules")["policy"] == "dragon"
    with pytest.raises(UserError, match="drag"):
        world.cluster.set_rules(RuleChanges(policy="drago"))
    with pytest.raises(UserError, match="rate limit"):
        world.cluster.set_rules(RuleChanges(rate_limit_seconds=1e9))
    assert world.cluster.rules().policy == "dragon"


def test_a_log_is_read_from_anywhere(world: FakeCluster, tmp_path: Path) -> None:
    world.cluster.create([a_spec("a")])
    with pytest.raises(UserError, match="has not started yet"):
        world.cluster.log("a")
    decide(world)
    assert world.cluster.log("a") == (b"", 0)
    (tmp_path / "jobs/a/1/worker-0/out.log").write_bytes(b"one\ntwo\n")
    assert world.cluster.log("a") == (b"one\ntwo\n", 8)
    assert world.cluster.log("a", offset=4) == (b"two\n", 8)
    assert world.cluster.log("a", offset=-4) == (b"two\n", 8)
    assert world.cluster.log("a", "worker-0", 0, 3) == (b"one", 3)
    assert world.cluster.log("a", offset=99) == (b"one\ntwo\n", 8)
    with pytest.raises(UserError, match="did you mean 'worker-0'"):
        world.cluster.log("a", "worker-1")


def test_the_journal_goes_on_over_restarts_and_leaves_out_what_is_nothing_new(
    world: FakeCluster, tmp_path: Path
) -> None:
    rules = world.cluster.rules()
    journal = ChangedRounds(StoredJournal(world.database, rules))
    world.cluster.create([a_spec("a"), a_spec("b"), a_spec("c")])
    for _ in range(5):
        world.machine.now += 2
        decide(world, journal)
    again = ChangedRounds(StoredJournal(world.database, rules))
    world.cluster.create([a_spec("d")])
    decide(world, again)
    path = tmp_path / "journal.jsonl"
    assert write_journal(world.database, rules, path)
    assert read_opening(path).policy == "elastic-fifo"
    rounds = list(read_rounds(path))
    assert [recorded.number for recorded in rounds] == [0, 1, 2]
    assert [len(recorded.actions) for recorded in rounds] == [2, 0, 0]


def test_a_pruned_journal_can_still_be_read(world: FakeCluster, tmp_path: Path) -> None:
    rules = world.cluster.rules()
    journal = ChangedRounds(StoredJournal(world.database, rules))
    for number in range(40):
        world.cluster.create([JobSpec(f"j{number}", "TrainingJob", (ReplicaSpec("worker", 1, ("true",), cpus=1000 - number),), 1, 1, 1)])  # fmt: skip  # noqa: E501
        world.machine.now += 2
        decide(world, journal)
    world.database.flush()
    prune(world.database, most_bytes=1000)
    world.database.flush()
    assert write_journal(world.database, rules, tmp_path / "journal.jsonl")
    numbers = [recorded.number for recorded in read_rounds(tmp_path / "journal.jsonl")]
    assert 0 < numbers[0] < 25
    assert numbers[-1] == 39


def test_distribution_csv_has_specon_s_header_and_tells_of_moves_and_of_those_kept(tmp_path: Path) -> None:
    world = a_cluster(tmp_path, some_slices(1, 1, is_shared=True))
    path = tmp_path / "distribution.csv"
    rules = make_rules("fifo", "spread", "specon:strict=true:period=1", "equal")
    controller = RoundLoop(world.backend, rules, (SpeconCsvFile(path),))
    world.cluster.create([a_spec("first"), a_spec("second"), a_spec("third")])
    controller.round()
    for step in range(200):
        world.machine.now += 1
        for name in ("first", "second", "third"):
            job = world.backend.store.find(name)
            loss = 9.0 - step if name == "third" else float(np.exp(-step))
            world.backend.watcher.add_reports(job, [ProgressReport(world.machine.now, step, 900, {"loss": loss})])
    for _ in range(3):
        world.machine.now += 31
        controller.round()
    world.database.close()
    lines = path.read_text().splitlines(keepends=True)
    assert lines[0] == HEADER == "time,job,orginal_node,to_node\n"
    rows = [line.rstrip("\n").split(",") for line in lines[1:]]
    assert [row[1:] for row in rows][:2] == [["first", "node0", "node1"], ["second", "node1", ""]]
    assert all(len(row) == 4 and float(row[0]) > 1000 for row in rows)
    assert "third" not in {row[1] for row in rows}
