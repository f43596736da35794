"""Batched submission: each request is accepted or rejected separately, and idempotent by key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sterna.backends.local.store.job_store import COUNTED_CPUS, shape_of
from sterna.errors import UserError
from sterna.model.cluster import MILLI
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec
from sterna.service.views import JobView
from tests.fakes.machine import FakeLocalCluster, a_cluster, some_slices


@pytest.fixture
def local(tmp_path: Path) -> Iterator[FakeLocalCluster]:
    made = a_cluster(tmp_path, some_slices(1, 1))
    yield made
    made.database.close()


def a_spec(name: str, workers: int = 1, kind: str = "TrainingJob", **needs: int) -> JobSpec:
    return JobSpec(name, kind, (ReplicaSpec("worker", workers, ("true",), **needs),), workers, workers, workers)  # type: ignore[arg-type]


def names(answer: list[JobView] | UserError) -> list[str] | str:
    return str(answer) if isinstance(answer, UserError) else [view.name for view in answer]


def test_every_submission_has_its_own_result(local: FakeLocalCluster) -> None:
    orders = [
        ([a_spec("a"), a_spec("b")], ""),
        ([a_spec("c", workers=9)], ""),
        ([a_spec("a")], ""),
        ([a_spec("d")], ""),
    ]
    answers = [names(answer) for answer in local.cluster.create_each(orders)]
    assert answers[0] == ["a", "b"]
    assert "room for 2" in answers[1]
    assert "There is a job 'a' already" in answers[2]
    assert answers[3] == ["d"]
    assert [job.name for job in local.cluster.jobs()] == ["a", "b", "d"]


def test_batched_submissions_get_consecutive_keys_and_events(local: FakeLocalCluster) -> None:
    local.cluster.create_each([([a_spec(name)], "") for name in "abc"])
    assert local.database.read("SELECT key, name FROM jobs ORDER BY key") == [(1, "a"), (2, "b"), (3, "c")]
    events = [(event.number, event.job, event.kind) for event in local.cluster.events()]
    assert events == [(1, "a", "submitted"), (2, "b", "submitted"), (3, "c", "submitted")]


def test_repeated_key_in_one_batch_creates_one_job(local: FakeLocalCluster) -> None:
    orders = [([a_spec("a")], "k"), ([a_spec("other")], "k"), ([a_spec("b")], "l")]
    assert [names(answer) for answer in local.cluster.create_each(orders)] == [["a"], ["a"], ["b"]]
    assert [names(answer) for answer in local.cluster.create_each(orders[:2])] == [["a"], ["a"]]
    assert len(local.cluster.jobs()) == 2


def test_key_of_a_rejected_submission_can_be_reused(local: FakeLocalCluster) -> None:
    refused = [([a_spec("a", workers=9)], "k"), ([a_spec("a")], "k")]
    assert all("room for 2" in names(answer) for answer in local.cluster.create_each(refused))
    assert names(local.cluster.create_each([([a_spec("a")], "k")])[0]) == ["a"]


def test_failed_write_rejects_the_batch_and_reserves_no_name(
    local: FakeLocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(statements: object) -> None:
        raise UserError("the disk is full; free some space and try again.")

    monkeypatch.setattr(local.database, "write", refuses)
    orders = [([a_spec("a")], ""), ([a_spec("b", workers=9)], ""), ([a_spec("c")], "k")]
    first, second, third = (names(answer) for answer in local.cluster.create_each(orders))
    assert "disk is full" in first
    assert "room for 2" in second
    assert "disk is full" in third
    monkeypatch.undo()
    assert local.cluster.jobs() == []
    assert [names(answer) for answer in local.cluster.create_each([orders[0], orders[2]])] == [["a"], ["c"]]


def test_accepted_submission_is_on_disk(local: FakeLocalCluster, tmp_path: Path) -> None:
    local.cluster.create_each([([a_spec("a")], "k")])
    with sqlite3.connect(tmp_path / "sterna.db") as other:
        assert other.execute("SELECT name FROM jobs").fetchall() == [("a",)]
        assert other.execute("SELECT key FROM answers").fetchall() == [("k",)]
    other.close()


PATTERNS = [
    ("step=(", "the pattern 'step=(' is no regular expression: missing ), unterminated subpattern at character 6"),
    (r"step=(\d+)", r"the pattern 'step=(\d+)' names nothing to read"),
    ("(?P<loss>(a+)+)b", "takes too long on lines that almost match"),
]


@pytest.mark.parametrize(("pattern", "message"), PATTERNS)
def test_invalid_progress_pattern_is_rejected_at_creation(local: FakeLocalCluster, pattern: str, message: str) -> None:
    spec = replace(a_spec("a"), progress=ProgressSpec({"stdout": [pattern]}))
    with pytest.raises(UserError) as refusal:
        local.cluster.create([spec])
    assert str(refusal.value).startswith("Job 'a': ")
    assert message in str(refusal.value)


@pytest.mark.parametrize(("is_shared", "counted"), [(False, MILLI), (True, COUNTED_CPUS)])
def test_default_cpu_request_is_one_core_or_the_minimum_on_shared_nodes(is_shared: bool, counted: int) -> None:
    slices = some_slices(4, devices=2, is_shared=is_shared)
    assert shape_of(a_spec("a"), slices).cpus == counted
    assert shape_of(a_spec("a", kind="Pod"), slices).cpus == counted
    assert shape_of(a_spec("a", devices=MILLI), slices).cpus == counted
    assert shape_of(a_spec("a", kind="PyTorchJob", devices=MILLI), slices).cpus == 0
    assert shape_of(a_spec("a", cpus=500), slices).cpus == 500
    served = replace(a_spec("a"), replicas=(ReplicaSpec("ps", 1, ("true",)), *a_spec("a").replicas))
    assert shape_of(served, slices).ps_cpus == counted
