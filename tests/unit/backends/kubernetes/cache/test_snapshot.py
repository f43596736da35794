"""The job table of a snapshot: order, columns that change with time, and interned shapes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from sterna.backends.kubernetes.api.job import KubeJob, PersistedState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.node_capacity import NodeCapacity
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.snapshot import JobTable, SnapshotHeader, build_snapshot
from sterna.control.job_state import SaveEvidence
from sterna.kinds.parsed_job import JobRef, NodeNeeds, ParsedJob, PodOwnership
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import Assignment, Shape
from sterna.model.job import JobSpec, ReplicaSpec, Resizing
from sterna.model.snapshot import NEVER

NOW = 1000.0


def an_entry(
    key: int, name: str, *, at: float = 0.0, shape: Shape | None = None, memory: PersistedState | None = None
) -> JobEntry:
    worker = ReplicaSpec("worker", 1, (), devices=1000)
    spec = JobSpec(name, "TrainingJob", (worker,), 1, 4, 2)
    ref = JobRef(TRAINING_JOBS, "default", name, f"uid-{key}")
    needs = shape or Shape()
    parsed_job = ParsedJob(ref, spec, needs, NodeNeeds(), {}, PodOwnership.OPERATOR, at)
    return JobEntry(KubeJob(key, parsed_job, memory or PersistedState(), 1), needs)


def a_table(*entries: JobEntry) -> JobTable:
    table = JobTable()
    for entry in entries:
        table.put(entry, {"node-0": 0}, {"default/evictor": 77})
    return table


def test_rows_are_in_the_order_of_submission_and_then_of_names() -> None:
    table = a_table(an_entry(1, "b", at=5.0), an_entry(2, "c", at=1.0), an_entry(3, "a", at=5.0))
    names, columns = table.columns(NOW)
    assert names == ["default/c", "default/a", "default/b"]
    assert columns["key"].tolist() == table.keys == [2, 3, 1]


def test_a_job_that_leaves_gives_its_row_to_others() -> None:
    entries = [an_entry(key, f"job-{key:03d}") for key in range(1, 200)]
    table = a_table(*entries)
    for entry in entries[::2]:
        table.drop(entry.key)
    table.drop(9999)
    table.put(an_entry(500, "job-000"), {}, {})
    names, columns = table.columns(NOW)
    assert len(table) == len(names) == 100
    assert names[0] == "default/job-000"
    assert columns["key"].tolist()[1:3] == [2, 4]


def test_the_current_run_is_added_to_the_accounted_time() -> None:
    memory = PersistedState(executed=100.0, counted_from=990.0, started_at=980.0, saved_at=985.0)
    _, columns = a_table(an_entry(1, "runs", memory=memory), an_entry(2, "waits")).columns(NOW)
    assert columns["executed"].tolist() == [110.0, 0.0]
    assert columns["unsaved"].tolist() == [15.0, 0.0]


def test_work_since_the_start_is_at_risk_until_the_first_checkpoint() -> None:
    _, columns = a_table(an_entry(1, "runs", memory=PersistedState(started_at=980.0))).columns(NOW)
    assert columns["unsaved"].tolist() == [20.0]


@pytest.mark.parametrize(
    ("save", "can_save", "unsaved"),
    [
        (SaveEvidence.NONE, 0, 20.0),
        (SaveEvidence.DECLARED, 1, 20.0),
        (SaveEvidence.SAVED, 1, 5.0),
        (SaveEvidence.REGISTERED, 1, 0.0),
        (SaveEvidence.BROKEN, 0, 20.0),
    ],
    ids=str,
)
def test_the_loss_of_a_stop_follows_from_what_the_job_has_shown(
    save: SaveEvidence, can_save: int, unsaved: float
) -> None:
    saved_at = 995.0 if save is SaveEvidence.SAVED else 0.0
    memory = PersistedState(started_at=980.0, save=save, saved_at=saved_at, spent=7.5)
    _, columns = a_table(an_entry(1, "runs", shape=Shape(0, 2500), memory=memory)).columns(NOW)
    assert (columns["can_save"].tolist(), columns["unsaved"].tolist()) == ([can_save], [unsaved])
    assert columns["spent"].tolist() == [7.5]


def test_a_job_that_did_not_run_well_keeps_nothing_during_its_back_off_and_then_does_not_preempt() -> None:
    held = an_entry(1, "held", memory=PersistedState(not_before=NOW + 5, failures=1))
    seated = an_entry(2, "seated", memory=PersistedState(not_before=NOW + 5, failures=1))
    seated.assignment = Assignment(((0, 2),))
    _, columns = a_table(held, seated).columns(NOW)
    assert columns["maximum"].tolist() == [0, 4]
    _, columns = a_table(held, seated).columns(NOW + 6)
    assert (columns["maximum"].tolist(), columns["may_preempt"].tolist()) == ([4, 4], [0, 0])


def test_a_job_that_ran_well_keeps_its_place_during_its_back_off() -> None:
    memory = PersistedState(not_before=NOW + 5, failures=1, ran_well=True)
    _, columns = a_table(an_entry(1, "held", memory=memory)).columns(NOW)
    assert (columns["maximum"].tolist(), columns["may_preempt"].tolist()) == ([4], [1])
    assert columns["not_before"].tolist() == [NOW + 5]


def test_a_job_that_does_not_resize_has_one_size() -> None:
    entry = an_entry(1, "fixed")
    entry.job.parsed_job = structs.replace(
        entry.parsed_job, spec=replace(entry.parsed_job.spec, resizing=Resizing.NONE)
    )
    _, columns = a_table(entry).columns(NOW)
    assert [columns[name].tolist() for name in ("minimum", "maximum", "request")] == [[2], [2], [2]]


@pytest.mark.parametrize(
    ("resizing", "save", "seconds"),
    [
        (Resizing.RESTART, SaveEvidence.SAVED, None),
        (Resizing.IN_PLACE, SaveEvidence.NONE, 1.0),
        (Resizing.TORCHRUN, SaveEvidence.NONE, None),
        (Resizing.TORCHRUN, SaveEvidence.SAVED, 30.0),
    ],
)
def test_a_resize_costs_what_its_mechanism_takes(resizing: Resizing, save: SaveEvidence, seconds: float | None) -> None:
    entry = an_entry(1, "elastic", memory=PersistedState(started_at=980.0, save=save))
    entry.job.parsed_job = structs.replace(entry.parsed_job, spec=replace(entry.parsed_job.spec, resizing=resizing))
    progress = Progress()
    progress.follow(entry.job)
    header = SnapshotHeader(NOW, -NEVER, -NEVER, lambda: np.empty(0), evicts_unsaved=True)
    snapshot = build_snapshot(a_table(entry), NodeCapacity().table(), {}, progress, header)
    found = snapshot.jobs.resize_seconds.item(0)
    assert math.isnan(found) if seconds is None else found == seconds
    assert (snapshot.jobs.restart_seconds.tolist(), snapshot.evicts_unsaved) == ([10.0], True)


def test_marks_come_back_as_rows_and_numbers_of_this_operator() -> None:
    memory = PersistedState(moves=2, moved_at=900.0, moved_from="node-0", evictor="default/evictor")
    _, columns = a_table(an_entry(1, "moved", memory=memory), an_entry(2, "other")).columns(NOW)
    assert columns["moved_from"].tolist() == [0, -1]
    assert columns["evictor"].tolist() == [77, -1]
    assert columns["moved_at"].tolist() == [900.0, -NEVER]


def test_shapes_are_those_of_the_jobs_that_are_there() -> None:
    small, large = Shape(1000), Shape(4000)
    table = a_table(an_entry(1, "a", shape=large), an_entry(2, "b", shape=small), an_entry(3, "c", shape=large))
    _, columns = table.columns(NOW)
    shapes = table.encode_shapes(columns)
    assert [shapes[code] for code in columns["shape"].tolist()] == [large, small, large]
    table.drop(2)
    _, columns = table.columns(NOW)
    assert table.encode_shapes(columns).rows == (large,)
    assert columns["shape"].tolist() == [0, 0]


def test_an_empty_table_has_columns_of_no_rows() -> None:
    names, columns = JobTable().columns(NOW)
    assert list(names) == []
    assert all(len(column) == 0 for column in columns.values())


def test_a_job_without_devices_has_the_cores_that_a_worker_can_use() -> None:
    _, columns = a_table(an_entry(1, "a", shape=Shape(0, 2500)), an_entry(2, "b")).columns(NOW)
    assert columns["most_cores"].tolist()[0] == 1.0
    assert math.isnan(columns["most_cores"].tolist()[1])
