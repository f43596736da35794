"""Evictors of jobs that lost workers, and obstacles of jobs that cannot run."""

from __future__ import annotations

import pytest

from sterna.engine.reasons import explain_actions
from sterna.model.cluster import NOWHERE, Assignment
from sterna.model.plan import Action, kind_of
from sterna.model.reason import Bar, Code, Obstacle, Reason
from sterna.model.snapshot import JobKey, Snapshot
from tests.builders import SOMEWHERE, AJob, ANode, a_job, a_node, a_snapshot, decided, some_nodes

NO_NODE = "cannot run: no node can hold even one of its workers "
GIB = 2**30


def explain(snapshot: Snapshot, **assignments: Assignment) -> dict[str, str]:
    """Return the reasons of a plan with these new assignments."""
    rows = {snapshot.jobs.name_of(row): row for row in range(len(snapshot.jobs))}
    actions = [
        Action(kind_of(before, after), JobKey(snapshot.jobs.key.item(rows[job])), rows[job], before, after)
        for job, after in assignments.items()
        for before in [snapshot.assignment_of(rows[job])]
    ]
    return {reason.job: reason.sentence for reason in explain_actions(snapshot, snapshot, actions)}


def on(*runs: tuple[int, int]) -> Assignment:
    return Assignment(runs)


def test_the_evictor_is_the_job_on_the_released_nodes() -> None:
    jobs = [a_job("x", 4, on={"n0": 4}), a_job("y", 4, on={"n1": 4}), a_job("first", 4), a_job("second", 4, submit=1)]
    reasons = explain(a_snapshot(jobs, some_nodes(4, 4)), x=NOWHERE, y=NOWHERE, first=on((1, 4)), second=on((0, 4)))
    assert reasons["x"] == "stopped with 4 workers to make room for second, which goes first under this policy."
    assert reasons["y"] == "stopped with 4 workers to make room for first, which goes first under this policy."


def test_a_start_on_free_nodes_evicts_no_job() -> None:
    jobs = [a_job("x", (1, 4), on={"n0": 4}), a_job("a", 4, submit=1), a_job("b", 2, submit=2)]
    reasons = explain(a_snapshot(jobs, some_nodes(4, 4)), x=on((0, 2)), a=on((1, 4)), b=on((0, 2)))
    assert reasons["x"] == "shrank from 4 to 2 workers to make room for b."


def test_released_capacity_that_no_job_needed_has_no_evictor() -> None:
    """The other node was empty: b would have started anyway."""
    jobs = [a_job("x", (1, 4), on={"n0": 4}), a_job("b", 2, submit=2)]
    reasons = explain(a_snapshot(jobs, some_nodes(4, 4)), x=on((0, 2)), b=on((0, 2)))
    assert reasons["x"] == "shrank from 4 to 2 workers, the share that the policy gives it now."


def test_free_nodes_that_the_evictor_may_not_use_do_not_count() -> None:
    nodes = [a_node("n0", 4, labels={"zone": "a"}), a_node("n1", 4)]
    jobs = [a_job("x", 4, on={"n0": 4}), a_job("b", 2, submit=2, selector={"zone": "a"})]
    reasons = explain(a_snapshot(jobs, nodes), x=NOWHERE, b=on((0, 2)))
    assert reasons["x"] == "stopped with 4 workers to make room for b, which goes first under this policy."


def test_free_parts_that_are_too_small_do_not_count() -> None:
    jobs = [a_job("x", 4, on={"n0": 2, "n1": 2}), a_job("b", 1, devices=4, submit=2)]
    reasons = explain(a_snapshot(jobs, some_nodes(4, 4)), x=NOWHERE, b=on((0, 1)))
    assert reasons["x"].startswith("stopped with 4 workers to make room for b,")


def test_two_evictors_are_named_and_more_are_counted_the_largest_first() -> None:
    jobs = [
        a_job("x", 4, on={"n0": 4}),
        *(a_job(name, size, submit=1) for name, size in (("a", 1), ("b", 2), ("c", 1))),
    ]
    snapshot = a_snapshot(jobs, 4)
    three = explain(snapshot, x=NOWHERE, a=on((0, 1)), b=on((0, 2)), c=on((0, 1)))
    assert three["x"] == "stopped with 4 workers to make room for b and 2 others, which go first under this policy."
    two = explain(snapshot, x=NOWHERE, a=on((0, 1)), b=on((0, 2)))
    assert two["x"] == "stopped with 4 workers to make room for b and a, which go first under this policy."


def test_a_job_that_moves_in_passes_on_the_capacity_it_left() -> None:
    """x leaves n0, m moves from n1 to n0, and s needs the whole of n1."""
    jobs = [a_job("x", 2, on={"n0": 2}), a_job("m", 2, on={"n1": 2}), a_job("s", 1, devices=4, submit=1)]
    snapshot = a_snapshot(jobs, some_nodes(2, 4))
    reasons = explain(snapshot, x=NOWHERE, m=on((0, 2)), s=on((1, 1)))
    assert reasons["x"].startswith("stopped with 2 workers to make room for s,")


def test_a_parameter_server_uses_room_too() -> None:
    jobs = [
        a_job("x", 1, devices=0, cpus=2, on={"n0": 1}),
        a_job("b", 1, devices=0, cpus=1, ps=1, ps_cpus=2, submit=1),
    ]
    nodes = [a_node("n0", 0, cpus=2), a_node("n1", 0, cpus=1)]
    reasons = explain(a_snapshot(jobs, nodes), x=NOWHERE, b=Assignment(((1, 1),), ((0, 1),)))
    assert reasons["x"].startswith("stopped with 1 worker to make room for b,")


def test_where_devices_are_only_counted_any_gainer_may_be_the_evictor() -> None:
    snapshot = a_snapshot([a_job("x", 4, on={SOMEWHERE: 4}), a_job("a", 3, submit=1)], 4)
    assert decided(snapshot, "fifo", "none").actions == []
    reasons = explain(snapshot, x=NOWHERE, a=Assignment(((-1, 3),)))
    assert reasons["x"].startswith("stopped with 4 workers to make room for a,")


RULED_OUT: dict[str, tuple[AJob, list[ANode], str]] = {
    "a label": (
        a_job(selector={"gpu": "h100"}),
        some_nodes(4, 4),
        "(1 device each): both nodes lack the label gpu=h100.",
    ),
    "a label, and devices": (
        a_job(devices=4, selector={"zone": "b"}),
        [*some_nodes(4, 4, 4), a_node("n3", 2, labels={"zone": "b"})],
        "(4 devices each): 3 of 4 nodes lack the label zone=b; the other has 2 of the 4 devices it needs.",
    ),
    "a taint": (
        a_job(),
        [a_node("n0", taints=["night"])],
        "(1 device each): the only node carries the taint night, which it does not tolerate.",
    ),
    "devices": (
        a_job(devices=8),
        some_nodes(4, 2),
        "(8 devices each): both nodes have at most 4 of the 8 devices it needs.",
    ),
    "a part of a device": (
        a_job(devices=0.5),
        [a_node("n0", 0, cpus=4), a_node("n1", 8, taints=["night"])],
        "(0.5 devices each): 1 of 2 nodes carries the taint night, which it does not tolerate; "
        "the other has 0 of the 0.5 devices it needs.",
    ),
    "CPUs": (
        a_job(cpus=1.5),
        [a_node("n0", cpus=1), a_node("n1", cpus=0.5)],
        "(1 device each): both nodes have at most 1 of the 1.5 CPUs it needs.",
    ),
    "memory": (
        a_job(memory_bytes=64 * GIB),
        [a_node("n0", memory_bytes=16 * GIB)],
        "(1 device each): the only node has 16 GiB of the 64 GiB of memory it needs.",
    ),
    "closed nodes": (
        a_job(devices=4),
        [a_node("n0", 2), a_node("n1", 2), a_node("n2", 8, is_open=False), a_node("n3", 8, taints=["night"])],
        "(4 devices each): 2 of 4 nodes have at most 2 of the 4 devices it needs; 1 more carries the taint night, "
        "which it does not tolerate; the other takes no new workers.",
    ),
}


@pytest.mark.parametrize("case", RULED_OUT)
def test_the_obstacle_on_every_node_is_named_with_numbers(case: str) -> None:
    job, nodes, ending = RULED_OUT[case]
    assert decided(a_snapshot([job], nodes), "fifo").reasons == {"a": NO_NODE + ending}


def test_parameter_servers_that_fit_on_no_node_are_reported_at_once() -> None:
    job = a_job("a", 1, ps=2, ps_cpus=8)
    reasons = decided(a_snapshot([job], [a_node("n0", cpus=4), a_node("n1", cpus=2)]), "fifo").reasons
    assert reasons["a"] == (
        "cannot run: no nodes can hold its 2 parameter servers: both nodes have at most 4 of the 8 CPUs it needs."
    )


def test_workers_that_do_not_fit_beside_their_parameter_servers_are_reported_at_once() -> None:
    job = a_job("a", 2, cpus=2, ps=1, ps_cpus=3)
    reasons = decided(a_snapshot([job], [a_node("n0", cpus=5)]), "fifo").reasons
    assert reasons["a"] == (
        "cannot run: it needs 2 workers at once and the whole cluster has room for 1 beside its parameter servers."
    )


USED_UP: dict[str, tuple[list[AJob], list[ANode], str]] = {
    "memory": (
        [a_job("x", memory_bytes=40 * GIB, on={"n0": 1}), a_job("a", memory_bytes=30 * GIB, submit=1)],
        [a_node("n0", 8, memory_bytes=64 * GIB)],
        "7 devices are free, but not where its 1 worker could be placed: the only node has 24 GiB free of the 30 GiB "
        "of memory it needs.",
    ),
    "what the plan takes": (
        [a_job("x", cpus=3), a_job("a", cpus=4, submit=1)],
        [a_node("n0", 8, cpus=4)],
        "7 devices are free, but not where its 1 worker could be placed: the only node has 1 free of the 4 CPUs it "
        "needs.",
    ),
    "room for some": (
        [a_job("x", cpus=4, on={"n0": 1}), a_job("a", 3, cpus=2, submit=1)],
        [a_node("n0", 8, cpus=7), a_node("n1", 8, cpus=2)],
        "there is room for 2 of its 3 workers: beside them, both nodes have at most 1 free of the 2 CPUs it needs.",
    ),
    "other reasons on other nodes": (
        [a_job("x", cpus=4, on={"n0": 1}), a_job("a", cpus=2, submit=1)],
        [a_node("n0", 8, cpus=4), a_node("n1", 8, cpus=8, is_open=False), a_node("n2", 8, taints=["night"])],
        "7 devices are free, but not where its 1 worker could be placed: 1 of 3 nodes carries the taint night, which "
        "it does not tolerate; 1 more has 0 free of the 2 CPUs it needs; the other takes no new workers.",
    ),
    "parts of devices": (
        [*(a_job(f"x{n}", devices=0.7) for n in range(2)), a_job("a", devices=0.5, submit=1)],
        [a_node("n0", 2)],
        "0.6 devices are free, but not where its 1 worker could be placed: the only node has 0.3 free of the 0.5 "
        "devices it needs.",
    ),
    "parameter servers": (
        [a_job("x", cpus=3, on={"n0": 1}), a_job("a", ps=2, ps_cpus=1, submit=1)],
        [a_node("n0", 8, cpus=4)],
        "7 devices are free, but not where its 2 parameter servers could be placed: the only node has 0 free of the 1 "
        "CPU it needs.",
    ),
}


@pytest.mark.parametrize("case", USED_UP)
def test_the_reason_of_a_waiting_job_names_the_resource_that_is_used_up(case: str) -> None:
    jobs, nodes, ending = USED_UP[case]
    assert decided(a_snapshot(jobs, nodes), "fifo:preempt=false").reasons["a"] == f"waits: {ending}"


def test_devices_are_named_on_a_cluster_that_has_none() -> None:
    reasons = decided(a_snapshot([a_job()], [a_node("n0", 0, cpus=4)]), "fifo").reasons
    assert reasons["a"] == NO_NODE + "(1 device each): the only node has 0 of the 1 device it needs."


def test_an_obstacle_of_one_node_is_singular() -> None:
    for bar in Bar:
        sentence = Reason(0, "a", Code.NO_NODE, 1, obstacles=(Obstacle(bar, 1, "x", 1, 2),)).sentence
        assert ": the only node " in sentence
        assert "at most" not in sentence
