"""`check` finds every violation: a valid plan passes, the same plan with one change does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.errors import Bug
from sterna.model.cluster import ANYWHERE, NOWHERE, Assignment
from sterna.model.plan import Action, ActionKind, Plan
from sterna.model.snapshot import JobKey, Snapshot
from sterna.wiring import make_rules
from tests.builders import a_job, a_node, a_snapshot, some_nodes

Bend = Callable[[list[Action]], list[Action]]


@dataclass
class Good:
    """A snapshot and a plan for it: `old` stops, `wide` shrinks, `new` starts, `more` grows."""

    snapshot: Snapshot
    actions: list[Action]

    def row(self, name: str) -> int:
        return next(row for row in range(len(self.snapshot.jobs)) if self.snapshot.jobs.name_of(row) == name)

    def action(self, kind: ActionKind, name: str, after: Assignment) -> Action:
        row = self.row(name)
        return Action(kind, JobKey(self.snapshot.jobs.key.item(row)), row, self.snapshot.assignment_of(row), after)


def a_good_plan() -> Good:
    jobs = [
        a_job("old", 2, on={"n0": 2}),
        a_job("wide", (1, 3), on={"n1": 2}),
        a_job("new", (2, 3)),
        a_job("more", (1, 4), on={"n2": 1}),
    ]
    good = Good(a_snapshot(jobs, some_nodes(2, 2, 4)), [])
    good.actions = [
        good.action(ActionKind.STOP, "old", NOWHERE),
        good.action(ActionKind.SHRINK, "wide", Assignment(((1, 1),))),
        good.action(ActionKind.START, "new", Assignment(((0, 2), (1, 1)))),
        good.action(ActionKind.GROW, "more", Assignment(((2, 4),))),
    ]
    return good


def replace_action(number: int, **fields: Any) -> Bend:
    """Change fields of one action of a plan."""
    return lambda actions: [*actions[:number], actions[number]._replace(**fields), *actions[number + 1 :]]


def test_a_good_plan_passes() -> None:
    good = a_good_plan()
    check(Plan(good.actions), good.snapshot)
    check(Plan(), good.snapshot)


@pytest.mark.parametrize(
    "bend",
    [
        pytest.param(lambda actions: actions + actions[-1:], id="a job twice"),
        pytest.param(lambda actions: actions[::-1], id="room used before it is free"),
        pytest.param(replace_action(2, key=JobKey(0)), id="a job under another's number"),
        pytest.param(replace_action(2, row=0), id="a job under another's row"),
        pytest.param(replace_action(0, before=Assignment(((0, 1),))), id="it does not sit where the plan assumes"),
        pytest.param(replace_action(3, before=NOWHERE, kind=ActionKind.START), id="it runs already"),
        pytest.param(replace_action(2, after=Assignment(((0, 1),))), id="below its minimum"),
        pytest.param(replace_action(2, after=Assignment(((0, 2), (2, 1), (1, 1)))), id="above its maximum"),
        pytest.param(replace_action(1, kind=ActionKind.GROW), id="a shrink called growth"),
        pytest.param(replace_action(0, after=Assignment(((0, 2),))), id="a stop that stops nothing"),
        pytest.param(replace_action(2, after=NOWHERE), id="a start that starts nothing"),
        pytest.param(replace_action(2, after=Assignment(((0, 3),))), id="a node over-committed"),
        pytest.param(lambda actions: actions[1:], id="room used that nobody freed"),
        pytest.param(replace_action(2, after=Assignment(((0, 2), (2, 1)))), id="a device used twice by two actions"),
        pytest.param(replace_action(2, after=Assignment(((0, 4), (1, -1)))), id="fewer than no workers on a node"),
        pytest.param(replace_action(2, after=Assignment(((0, 2), (7, 1)))), id="a node that does not exist"),
        pytest.param(replace_action(2, after=Assignment(((0, 2), (ANYWHERE, 1)))), id="a worker in the air"),
    ],
)
def test_a_bent_plan_does_not(bend: Bend) -> None:
    good = a_good_plan()
    with pytest.raises(Bug):
        check(Plan(bend(good.actions)), good.snapshot)


@pytest.mark.parametrize("node", ["closed", "tainted", "without the label"])
def test_a_plan_with_a_job_on_a_forbidden_node_is_rejected(node: str) -> None:
    nodes = {
        "closed": a_node("n0", 4, is_open=False, labels={"zone": "a"}),
        "tainted": a_node("n0", 4, taints=("lab",), labels={"zone": "a"}),
        "without the label": a_node("n0", 4),
    }
    good = Good(a_snapshot([a_job("a", 1, selector={"zone": "a"})], [nodes[node], a_node("n1", 1)]), [])
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.START, "a", Assignment(((0, 1),)))]), good.snapshot)


def test_a_job_may_stay_on_a_node_that_closed() -> None:
    """It shrinks or keeps what it has; growing there is another matter."""
    nodes = [a_node("n0", 4, is_open=False), a_node("n1", 4)]
    good = Good(a_snapshot([a_job("a", (1, 4), on={"n0": 2})], nodes), [])
    check(Plan([good.action(ActionKind.SHRINK, "a", Assignment(((0, 1),)))]), good.snapshot)
    check(Plan([good.action(ActionKind.GROW, "a", Assignment(((0, 2), (1, 1))))]), good.snapshot)
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.GROW, "a", Assignment(((0, 3),)))]), good.snapshot)


@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param(Assignment(((0, 2),), ((0, 1),)), id="a parameter server is missing"),
        pytest.param(Assignment(((0, 2),), ((0, 3),)), id="one too many"),
        pytest.param(Assignment(((0, 2),)), id="none at all"),
        pytest.param(Assignment(((0, 2),), ((1, 2),)), id="on a node without CPUs for them"),
        pytest.param(Assignment(((1, 2),), ((0, 2),)), id="workers on a node without memory for them"),
    ],
)
def test_a_gang_is_whole_with_its_parameter_servers(assignment: Assignment) -> None:
    """DRAGON-12."""
    nodes = [a_node("n0", 2, cpus=4, memory_bytes=9), a_node("n1", 2, cpus=2, memory_bytes=3)]
    good = Good(a_snapshot([a_job("a", 2, memory_bytes=2, ps=2, ps_cpus=2), a_job("b", 1)], nodes), [])
    check(Plan([good.action(ActionKind.START, "a", Assignment(((0, 2),), ((0, 2),)))]), good.snapshot)
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.START, "a", assignment)]), good.snapshot)


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param((0, 0), id="two of 0.6 on one device"),
        pytest.param((0, 1), id="on a device that is whole, and taken"),
        pytest.param((1,), id="a worker without a device"),
    ],
)
def test_a_shared_device_is_not_over_committed(slots: tuple[int, ...]) -> None:
    """DRAGON-36: one device is whole and taken, one free, one shared by 0.5."""
    jobs = [
        a_job("whole", 1, on={"n0": 1}),
        a_job("half", 1, devices=0.5, on={"n0": 1}, slots=(0,)),
        a_job("a", (1, 2), devices=0.6),
    ]
    good = Good(a_snapshot(jobs, some_nodes(3)), [])
    check(Plan([good.action(ActionKind.START, "a", Assignment(((0, 1),), (), (1,)))]), good.snapshot)
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.START, "a", Assignment(((0, 2),), (), slots))]), good.snapshot)


def test_devices_that_are_only_counted_are_counted() -> None:
    snapshot = a_snapshot([a_job("a", (1, 9)), a_job("b", 2, devices=2)], 4)
    plan = decide(snapshot, make_rules("fifo", "none")).plan
    check(plan, snapshot)
    good = Good(snapshot, [])
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.START, "a", Assignment(((ANYWHERE, 5),)))]), snapshot)


def test_parameter_servers_are_counted_too_on_a_cluster_of_cpus() -> None:
    job = a_job("a", (1, 4), devices=0, cpus=1, ps=1, ps_cpus=2)
    good = Good(a_snapshot([job, a_job("b", 1, devices=0, cpus=1)], [a_node("n0", 0, cpus=4)]), [])
    with pytest.raises(Bug):
        check(Plan([good.action(ActionKind.START, "a", Assignment(((ANYWHERE, 3),)))]), good.snapshot)
