"""Shapes, assignments, nodes and the sums of a snapshot."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.model.cluster import NOWHERE, Assignment, ResourceKind, Shape, slots_in
from sterna.model.plan import ActionKind, kind_of
from sterna.model.snapshot import compute_totals
from tests.builders import a_job, a_node, a_snapshot, some_nodes


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (NOWHERE, Assignment(((0, 2),)), ActionKind.START),
        (Assignment(((0, 2),)), NOWHERE, ActionKind.STOP),
        (Assignment(((0, 2),)), Assignment(((0, 3),)), ActionKind.GROW),
        (Assignment(((0, 2), (1, 1))), Assignment(((0, 2),)), ActionKind.SHRINK),
        (Assignment(((0, 2),)), Assignment(((1, 2),)), ActionKind.MIGRATE),
    ],
)
def test_what_leads_from_one_assignment_to_another(before: Assignment, after: Assignment, kind: ActionKind) -> None:
    assert kind_of(before, after) is kind


@pytest.mark.parametrize(
    ("shape", "slots"),
    [
        (Shape(1000), 3),
        (Shape(2000), 1),
        (Shape(4000), 0),
        (Shape(500), 6),
        (Shape(600), 3),
        (Shape(250), 12),
        (Shape(1000, cpus=2000), 2),
        (Shape(250, cpus=1000), 5),
        (Shape(1000, memory_bytes=7), 1),
        (Shape(0, cpus=500), 10),
    ],
)
def test_how_many_workers_fit_beside_each_other(shape: Shape, slots: int) -> None:
    free = np.array([[3000], [5000], [10]])
    assert slots_in(free, shape).tolist() == [slots]


def test_a_shape_accepts_nodes_by_labels_and_taints() -> None:
    shape = Shape(selector=(("gpu", "a100"),), tolerations=frozenset({"lab"}))
    assert shape.accepts({"gpu": "a100", "zone": "x"}, frozenset())
    assert shape.accepts({"gpu": "a100"}, frozenset({"lab"}))
    assert not shape.accepts({"gpu": "t4"}, frozenset())
    assert not shape.accepts({}, frozenset())
    assert not shape.accepts({"gpu": "a100"}, frozenset({"lab", "other"}))
    assert Shape(tolerations=frozenset({"*"})).accepts({}, frozenset({"lab", "other"}))


def test_shapes_of_equal_needs_are_equal() -> None:
    assert Shape(500, 1, ps=1) == Shape(500, 1, ps=1)
    assert hash(Shape(500, 1, ps=1)) == hash(Shape(500, 1, ps=1))
    assert Shape(500) != Shape(501)


def test_the_sums_of_a_snapshot() -> None:
    """Closed nodes have nothing free for us; parts of shared devices are free; parameter servers hold nothing here."""
    nodes = [a_node("n0", 4, cpus=4), a_node("n1", 2, is_open=False), a_node("n2", 1)]
    jobs = [
        a_job("a", (1, 3), devices=2, on={"n0": 1}),
        a_job("b", 1, devices=0.25, on={"n2": 1}, slots=(0,)),
        a_job("c", (2, 5), ps=1, ps_cpus=1),
    ]
    totals = compute_totals(a_snapshot(jobs, nodes).jobs, a_snapshot(jobs, nodes).nodes, a_snapshot(jobs, nodes).shapes)
    assert totals.free_units == 2000 + 750
    assert totals.held_units == 2000 + 250
    assert totals.least_units == 2000 + 250 + 2000
    assert totals.max_workers == 5
    assert not totals.is_rigid


def test_policies_count_devices_or_cpus_where_there_are_none() -> None:
    assert a_snapshot([], some_nodes(1, 0)).nodes.unit is ResourceKind.DEVICES
    assert a_snapshot([], [a_node("n0", 0, cpus=8)]).nodes.unit is ResourceKind.CPUS


def test_rows_are_in_submit_order_then_by_name() -> None:
    jobs = [a_job("b", submit=1), a_job("c", submit=0), a_job("a", submit=1)]
    snapshot = a_snapshot(jobs)
    assert [snapshot.jobs.name_of(row) for row in range(3)] == ["c", "a", "b"]
    assert snapshot.jobs.key.tolist() == [1, 2, 0]


def test_columns_are_read_only() -> None:
    snapshot = a_snapshot([a_job()])
    with pytest.raises(ValueError, match="read-only"):
        snapshot.jobs.workers[0] = 3


def test_held_to_fewer_workers_only_the_maximum_differs() -> None:
    jobs = a_snapshot([a_job("a", (1, 8)), a_job("b", (4, 8))]).jobs
    held = jobs.with_max_workers(np.array([3, 3]))
    assert held.maximum.tolist() == [3, 3]
    assert held.barred is not None
    assert held.barred.tolist() == [False, True]
    assert held.minimum is jobs.minimum
    assert (held.name_of(1), len(held)) == ("b", 2)
