"""What holds for every policy under every placement, shipped today or added tomorrow: rules are found, not listed."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sterna.engine.registry import RuleKind
from sterna.model.cluster import ANYWHERE
from sterna.model.snapshot import Snapshot
from sterna.wiring import rules_of

from tests.builders import Decided, World, a_job, a_node, a_snapshot, after, decided, world_of
from tests.properties.worlds import NOW, snapshot_of, worlds

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
PLACEMENTS = [info.name for info in rules_of(RuleKind.PLACEMENT)]
VARIANTS = {
    "fifo": ("fifo:preempt=false", "fifo:preempt=false:backfill=false"),
    "srjf": ("srjf:by=time",),
    "tiresias": ("tiresias:gittins=true",),
    "elastic-tiresias": ("elastic-tiresias:compact=1",),
    "stay": ("stay:repack=stuck", "stay:repack=always"),
}

RULES = list(product(POLICIES, PLACEMENTS))
RULES += [(variant, "stay") for name in POLICIES for variant in VARIANTS.get(name, ())]
RULES += [(policy, variant) for variant in VARIANTS["stay"] for policy in ("fifo", "elastic-srjf", "dragon")]

every_rule = pytest.mark.parametrize(("policy", "placement"), RULES)
few = settings(max_examples=25)


@every_rule
@few
@given(data=st.data())
def test_a_plan_is_whole_and_holds(policy: str, placement: str, data: st.DataObject) -> None:
    """VODA-26, 84, DRAGON-12, 13: 0 or min..max, gangs whole, no device twice, nobody where it may not be."""
    before = snapshot_of(data.draw(worlds(placement)))
    result = decided(before, policy, placement)
    then = after(before, result.decision)
    for job in world_of(then).jobs:
        assert job.workers == 0 or job.minimum <= job.workers <= job.maximum
        assert sum(count for _, count in job.ps_on) == (job.shape.ps if job.workers and placement != "none" else 0)
        assert len(job.slots) == (job.workers if job.shape.is_fraction and placement != "none" else 0)
    assert then.free_units >= 0
    assert then.nodes.free.min(initial=0) >= 0
    assert all(0 <= part for devices in then.nodes.shared.values() for part in devices.values())
    _nobody_sits_where_it_may_not(before, result)


@every_rule
@few
@given(data=st.data())
def test_units_are_neither_made_nor_lost(policy: str, placement: str, data: st.DataObject) -> None:
    world = data.draw(worlds(placement))
    before = snapshot_of(World(world.jobs, tuple(_opened(node) for node in world.nodes), NOW, world.last_action, ()))
    then = after(before, decided(before, policy, placement).decision)
    assert then.free_units + then.held_units == before.free_units + before.held_units


@every_rule
@few
@given(data=st.data())
def test_deciding_again_on_its_own_result_changes_nothing(policy: str, placement: str, data: st.DataObject) -> None:
    before = snapshot_of(data.draw(worlds(placement)))
    then = after(before, decided(before, policy, placement).decision)
    assert decided(then, policy, placement).actions == []


@every_rule
@few
@given(data=st.data())
def test_the_order_of_the_input_does_not_matter(policy: str, placement: str, data: st.DataObject) -> None:
    """VODA-28, 47: the same jobs and nodes in another order, with other numbers, get the same plan."""
    world = data.draw(worlds(placement))
    jobs = tuple(data.draw(st.permutations(world.jobs)))
    nodes = tuple(data.draw(st.permutations(world.nodes)))
    one = decided(snapshot_of(world), policy, placement)
    other = decided(snapshot_of(World(jobs, nodes, NOW, world.last_action, world.finished)), policy, placement)
    assert one[:4] == other[:4]
    assert one.decision.until == other.decision.until


@every_rule
@few
@given(data=st.data())
def test_every_job_that_waits_or_changed_has_a_reason_with_a_number(
    policy: str, placement: str, data: st.DataObject
) -> None:
    before = snapshot_of(data.draw(worlds(placement)))
    result = decided(before, policy, placement)
    changed = {job for _, job in result.actions}
    waiting = {name for name, workers in result.allocation.items() if not workers}
    assert set(result.reasons) == changed | waiting
    assert len(result.decision.reasons) == len(result.reasons)
    for sentence in result.reasons.values():
        assert sentence.endswith(".")
        assert ". " not in sentence
        assert any(letter.isdigit() for letter in sentence)
        assert "-" not in sentence.replace("re-", "")


@every_rule
@few
@given(data=st.data())
def test_a_decision_stands_until_later(policy: str, placement: str, data: st.DataObject) -> None:
    assert decided(snapshot_of(data.draw(worlds(placement))), policy, placement).decision.until > NOW


@every_rule
def test_nothing_to_do_and_nothing_to_do_it_with(policy: str, placement: str) -> None:
    """VODA-48: zero jobs, zero devices, no node at all, only closed nodes."""
    jobs = [a_job("a", (1, 4)), a_job("b", 2, submit=1)]
    assert decided(a_snapshot([], 8), policy, placement).allocation == {}
    assert decided(a_snapshot([], []), policy, placement).allocation == {}
    for nodes in ([], [a_node("n0", 0)], [a_node("n0", 4, is_open=False)]):
        result = decided(a_snapshot(jobs, nodes), policy, placement)
        assert result.allocation == {"a": 0, "b": 0}
        assert set(result.reasons) == {"a", "b"}


def _nobody_sits_where_it_may_not(before: Snapshot, result: Decided) -> None:
    """Workers that are new on a node are on an open one whose labels and taints suit them."""
    nodes = before.nodes
    for action in result.decision.plan:
        shape = before.shapes[int(before.jobs.shape[action.row])]
        old: dict[int, int] = {}
        for node, count in (*action.before.workers, *action.before.ps):
            old[node] = old.get(node, 0) + count
        for node, count in (*action.after.workers, *action.after.ps):
            old[node] = old.get(node, 0) - count
            if node != ANYWHERE and old[node] < 0:
                assert nodes.is_open[node]
                assert shape.accepts(nodes.labels[node], nodes.taints[node])


def _opened(node: object) -> object:
    from dataclasses import replace

    return replace(node, is_open=True)  # type: ignore[type-var]
