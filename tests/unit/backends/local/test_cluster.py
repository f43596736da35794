"""The verbs of `LocalCluster` on a fake machine."""

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
from tests.fakes.machine import FakeLocalCluster, a_cluster, some_slices


@pytest.fixture
def local(tmp_path: Path) -> Iterator[FakeLocalCluster]:
    made = a_cluster(tmp_path, some_slices(1, 1))
    yield made
    made.database.close()


def a_spec(name: str, *command: str, workers: int = 1, **more: object) -> JobSpec:
    replica = ReplicaSpec("worker", workers, command or ("true",))
    return replace(JobSpec(name, "TrainingJob", (replica,), workers, workers, workers), **more)  # type: ignore[arg-type]


def decide(local: FakeLocalCluster, observer: RoundObserver | None = None) -> None:
    RoundLoop(local.backend, make_rules("elastic-fifo", "stay"), () if observer is None else (observer,)).round()


def test_local_cluster_implements_the_cluster_service(local: FakeLocalCluster) -> None:
    verbs: ClusterService = local.cluster
    assert verbs.jobs() == []
    assert [node.name for node in verbs.nodes()] == ["node0", "node1"]


def test_created_jobs_are_on_disk_when_create_returns(local: FakeLocalCluster) -> None:
    local.cluster.create([a_spec("a"), a_spec("b")])
    assert local.database.read("SELECT name FROM jobs ORDER BY name") == [("a",), ("b",)]


def test_create_is_atomic(local: FakeLocalCluster) -> None:
    with pytest.raises(UserError, match="room for 2"):
        local.cluster.create([a_spec("a"), a_spec("b", workers=9)])
    with pytest.raises(UserError, match="'a' already"):
        local.cluster.create([a_spec("a"), a_spec("a")])
    assert local.cluster.jobs() == []
    assert local.database.read("SELECT name FROM jobs") == []
    assert local.cluster.create([a_spec("a")])[0].name == "a"


def test_create_is_idempotent_for_one_key(local: FakeLocalCluster) -> None:
    first = local.cluster.create([a_spec("a")], key="k")
    assert local.cluster.create([a_spec("a")], key="k") == first
    assert len(local.cluster.jobs()) == 1


def test_concurrent_creates_with_one_key_create_one_job(local: FakeLocalCluster) -> None:
    answers: list[str] = []

    def ask() -> None:
        answers.append(local.cluster.create([a_spec("a")], key="k")[0].name)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["a"] * 8
    assert len(local.cluster.jobs()) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
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
def test_invalid_spec_is_rejected_with_a_message(local: FakeLocalCluster, spec: JobSpec, message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        local.cluster.create([spec])
    assert str(refusal.value).endswith(".")
    assert local.cluster.jobs() == []


def test_unknown_name_suggests_the_nearest_name(local: FakeLocalCluster) -> None:
    local.cluster.create([a_spec("training")])
    for ask in (local.cluster.job, local.cluster.explain, local.cluster.history, local.cluster.log):
        with pytest.raises(UserError, match="did you mean 'training'"):
            ask("trainin")
    with pytest.raises(UserError, match="did you mean 'node"):
        local.cluster.cordon("node")
    with pytest.raises(UserError, match="no node"):
        local.cluster.migrate("training", "elsewhere")


def test_waiting_job_cannot_move_and_completed_job_cannot_scale(local: FakeLocalCluster) -> None:
    local.cluster.create([a_spec("a")])
    with pytest.raises(UserError, match="does not run"):
        local.cluster.migrate("a", "node1")
    decide(local)
    with pytest.raises(UserError, match="is on node0 already"):
        local.cluster.migrate("a", "node0")
    local.cluster.create([a_spec("b")])
    decide(local)
    with pytest.raises(UserError, match="node1 has no room"):
        local.cluster.migrate("a", "node1")
    local.machine.end("a/1/worker-0", 0)
    local.backend.wait(local.machine.now + 1)
    with pytest.raises(UserError, match="has completed"):
        local.cluster.scale("a", 1, 2)


def test_events_are_filtered_by_number_and_job(local: FakeLocalCluster) -> None:
    local.cluster.create([a_spec("a"), a_spec("b")])
    decide(local)
    events = local.cluster.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in local.cluster.events("a")] == ["submitted", "started"]
    assert local.cluster.events(after=events[-1].number) == []
    assert local.cluster.events(after=1, limit=1) == events[1:2]
    assert local.cluster.events(limit=2) == events[-2:]


def test_old_events_are_read_from_the_database(local: FakeLocalCluster) -> None:
    for number in range(30):
        local.backend.store.note("a", "noted", f"number {number}.")
    for _ in range(20):
        local.backend.store.events.popleft()
    assert len(local.cluster.events()) == 30
    assert [event.number for event in local.cluster.events("a", after=5, limit=3)] == [6, 7, 8]


def test_watch_yields_everything_once_and_then_each_change(local: FakeLocalCluster) -> None:
    updates = local.cluster.watch(("jobs",))
    assert next(updates) == JobsUpdate([], [])
    for name in ("a", "b"):
        local.cluster.create([a_spec(name)])
        update = next(updates)
        assert isinstance(update, JobsUpdate)
        assert name in [job.name for job in update.changed]
    local.backend.store.close()
    assert list(updates) == []


def test_reports_over_the_api_count_as_progress(local: FakeLocalCluster) -> None:
    local.cluster.create([a_spec("a")])
    decide(local)
    for step in range(5):
        local.machine.now += 2
        local.cluster.report("a", step, 100, {"loss": 5.0 - step})
    view = local.cluster.job("a")
    assert (view.step, view.total, view.metric, view.value) == (4, 100, "loss", 1.0)
    assert [report.metrics["loss"] for report in local.cluster.history("a")] == [5, 4, 3, 2, 1]


def test_rule_changes_are_stored(local: FakeLocalCluster) -> None:
    view = local.cluster.set_rules(RuleChanges(policy="dragon"))
    assert (view.policy, view.placement) == ("dragon", "pack")
    assert local.cluster.set_rules(RuleChanges(rate_limit_seconds=2.5)).rate_limit_seconds == 2.5
    assert local.backend.store.setting("rules")["policy"] == "dragon"
    with pytest.raises(UserError, match="drag"):
        local.cluster.set_rules(RuleChanges(policy="drago"))
    with pytest.raises(UserError, match="rate limit"):
        local.cluster.set_rules(RuleChanges(rate_limit_seconds=1e9))
    assert local.cluster.rules().policy == "dragon"


def test_log_is_read_from_any_offset(local: FakeLocalCluster, tmp_path: Path) -> None:
    local.cluster.create([a_spec("a")])
    with pytest.raises(UserError, match="has not started yet"):
        local.cluster.log("a")
    decide(local)
    assert local.cluster.log("a") == (b"", 0)
    (tmp_path / "jobs/a/1/worker-0/out.log").write_bytes(b"one\ntwo\n")
    assert local.cluster.log("a") == (b"one\ntwo\n", 8)
    assert local.cluster.log("a", offset=4) == (b"two\n", 8)
    assert local.cluster.log("a", offset=-4) == (b"two\n", 8)
    assert local.cluster.log("a", "worker-0", 0, 3) == (b"one", 3)
    assert local.cluster.log("a", offset=99) == (b"one\ntwo\n", 8)
    with pytest.raises(UserError, match="did you mean 'worker-0'"):
        local.cluster.log("a", "worker-1")


def test_journal_continues_after_a_restart_and_skips_unchanged_rounds(local: FakeLocalCluster, tmp_path: Path) -> None:
    rules = local.cluster.rules()
    journal = ChangedRounds(StoredJournal(local.database, rules))
    local.cluster.create([a_spec("a"), a_spec("b"), a_spec("c")])
    for _ in range(5):
        local.machine.now += 2
        decide(local, journal)
    again = ChangedRounds(StoredJournal(local.database, rules))
    local.cluster.create([a_spec("d")])
    decide(local, again)
    path = tmp_path / "journal.jsonl"
    assert write_journal(local.database, rules, path)
    assert read_opening(path).policy == "elastic-fifo"
    rounds = list(read_rounds(path))
    assert [recorded.number for recorded in rounds] == [0, 1, 2]
    assert [len(recorded.actions) for recorded in rounds] == [2, 0, 0]


def test_a_pruned_journal_can_still_be_read(local: FakeLocalCluster, tmp_path: Path) -> None:
    rules = local.cluster.rules()
    journal = ChangedRounds(StoredJournal(local.database, rules))
    for number in range(40):
        local.cluster.create([JobSpec(f"j{number}", "TrainingJob", (ReplicaSpec("worker", 1, ("true",), cpus=1000 - number),), 1, 1, 1)])  # fmt: skip  # noqa: E501
        local.machine.now += 2
        decide(local, journal)
    local.database.flush()
    prune(local.database, most_bytes=1000)
    local.database.flush()
    assert write_journal(local.database, rules, tmp_path / "journal.jsonl")
    numbers = [recorded.number for recorded in read_rounds(tmp_path / "journal.jsonl")]
    assert 0 < numbers[0] < 25
    assert numbers[-1] == 39


def test_distribution_csv_lists_moves_and_kept_jobs(tmp_path: Path) -> None:
    local = a_cluster(tmp_path, some_slices(1, 1, is_shared=True))
    path = tmp_path / "distribution.csv"
    rules = make_rules("fifo", "spread", "specon:strict=true:period=1", "equal")
    controller = RoundLoop(local.backend, rules, (SpeconCsvFile(path),))
    local.cluster.create([a_spec("first"), a_spec("second"), a_spec("third")])
    controller.round()
    for step in range(200):
        local.machine.now += 1
        for name in ("first", "second", "third"):
            job = local.backend.store.find(name)
            loss = 9.0 - step if name == "third" else float(np.exp(-step))
            local.backend.watcher.add_reports(job, [ProgressReport(local.machine.now, step, 300, {"loss": loss})])
    for _ in range(3):
        local.machine.now += 31
        controller.round()
    local.database.close()
    lines = path.read_text().splitlines(keepends=True)
    assert lines[0] == HEADER == "time,job,orginal_node,to_node\n"
    rows = [line.rstrip("\n").split(",") for line in lines[1:]]
    assert [row[1:] for row in rows][:2] == [["first", "node0", "node1"], ["second", "node1", ""]]
    assert all(len(row) == 4 and float(row[0]) > 1000 for row in rows)
    assert "third" not in {row[1] for row in rows}
