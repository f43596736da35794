"""Properties of every policy under every placement, shipped today or added tomorrow: rules are found, not listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.engine.registry import RuleKind
from sterna.model.cluster import ANYWHERE
from sterna.model.snapshot import Snapshot
from sterna.wiring import rules_of
from tests.builders import ClusterSpec, Decided, a_job, a_node, a_snapshot, after, decided, spec_of
from tests.properties.clusters import NOW, a_cluster, a_wide_cluster, snapshot_of

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
PLACEMENTS = [info.name for info in rules_of(RuleKind.PLACEMENT)]
RULES = [
    *product(POLICIES, PLACEMENTS),
    *product(("fifo", "elastic-srjf", "dragon"), ("stay:repack=stuck", "stay:repack=always")),
    ("fifo:preempt=false", "stay"),
    ("fifo:preempt=false:backfill=false", "stay"),
    ("srjf:by=time", "stay"),
    ("tiresias:gittins=true", "stay"),
    ("tiresias:order=entry:threshold=1000:second=2000:promote=0", "stay"),
    ("elastic-tiresias:gittins=true", "stay"),
    ("elastic-tiresias:compact=1", "stay"),
]

Fact = Callable[[str, str, int, int, int], None]


def of_every_rule(examples: int) -> Callable[[Fact], Fact]:
    """Try a fact on `examples` small clusters, for every pair of rules."""

    def wrap(fact: Fact) -> Fact:
        tried = given(seed=st.integers(0, 1_000_000), jobs=st.integers(0, 8), nodes=st.integers(1, 4))(fact)
        tried = settings(max_examples=examples)(tried)
        marked: Fact = pytest.mark.parametrize(("policy", "placement"), RULES)(tried)
        return marked

    return wrap


@of_every_rule(15)
def test_a_plan_is_whole_and_holds(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    """VODA-26, 84, DRAGON-12, 13: 0 or min..max, gangs whole, no device twice, no job on a node that it does not
    accept."""
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    result = decided(before, policy, placement)
    then = after(before, result.decision)
    for job in spec_of(then).jobs:
        assert job.workers == 0 or job.minimum <= job.workers <= job.maximum
        assert sum(count for _, count in job.ps_on) == (job.shape.ps if job.workers else 0)
        assert len(job.slots) == (job.workers if job.shape.is_fraction else 0)
    assert then.free_units >= 0
    assert then.nodes.free.min(initial=0) >= 0
    assert all(part >= 0 for devices in then.nodes.shared.values() for part in devices.values())
    check_allowed_nodes(before, result)


@of_every_rule(15)
def test_wide_ranges_of_shapes_that_divide_no_node_come_to_terms_with_every_placement(
    policy: str, placement: str, seed: int, jobs: int, nodes: int
) -> None:
    """A job that does not fit at full size gets fewer workers, and the plan is valid."""
    before = snapshot_of(a_wide_cluster(seed, min(jobs, 5), 2 * nodes))
    then = after(before, decided(before, policy, placement).decision)
    assert then.nodes.free.min(initial=0) >= 0
    assert decided(then, policy, placement).actions == []


@of_every_rule(10)
def test_units_are_neither_made_nor_lost(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    cluster = a_cluster(seed, jobs, nodes, placement)
    before = snapshot_of(replace(cluster, nodes=tuple(replace(node, is_open=True) for node in cluster.nodes)))
    then = after(before, decided(before, policy, placement).decision)
    assert then.units == before.units


@of_every_rule(25)
def test_deciding_again_on_its_own_result_changes_nothing(
    policy: str, placement: str, seed: int, jobs: int, nodes: int
) -> None:
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    then = after(before, decided(before, policy, placement).decision)
    assert decided(then, policy, placement).actions == []


@pytest.mark.parametrize(
    ("policy", "placement", "seed", "jobs", "nodes"),
    [
        ("fifo", "stay", 1284, 4, 3),
        ("elastic-tiresias", "topology", 165, 5, 3),
        ("elastic-tiresias", "stay", 1221, 4, 5),
    ],
)
def test_a_plan_is_thought_through_to_the_end(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    """A closed node, a shape that does not fit, a return to the first queue: each opened room that the first answer of
    the policy did not count on."""
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    then = after(before, decided(before, policy, placement).decision)
    assert decided(then, policy, placement).actions == []


@of_every_rule(10)
def test_the_order_of_the_input_does_not_matter(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    """VODA-28, 47: the same jobs and nodes in another order, under other numbers, get the same plan."""
    cluster = a_cluster(seed, jobs, nodes, placement)
    random = Random(seed)
    shuffled = ClusterSpec(
        tuple(random.sample(cluster.jobs, jobs)),
        tuple(random.sample(cluster.nodes, len(cluster.nodes))),
        NOW,
        cluster.last_action,
        cluster.finished,
    )
    one, other = (decided(snapshot_of(each), policy, placement) for each in (cluster, shuffled))
    assert one[:4] == other[:4]
    assert one.decision.until == other.decision.until


@of_every_rule(10)
def test_every_job_that_waits_or_changed_has_a_reason_with_a_number(
    policy: str, placement: str, seed: int, jobs: int, nodes: int
) -> None:
    result = decided(snapshot_of(a_cluster(seed, jobs, nodes, placement)), policy, placement)
    changed = {job for _, job in result.actions}
    waiting = {name for name, workers in result.allocation.items() if not workers}
    assert set(result.reasons) == changed | waiting
    assert len(result.decision.reasons) == len(result.reasons)
    for sentence in result.reasons.values():
        assert sentence.endswith(".")
        assert ". " not in sentence
        assert any(letter.isdigit() for letter in sentence)
        assert " -" not in sentence
        assert "(-" not in sentence


@of_every_rule(10)
def test_a_decision_stands_until_later(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    assert decided(snapshot_of(a_cluster(seed, jobs, nodes, placement)), policy, placement).decision.until > NOW


@pytest.mark.parametrize(("policy", "placement"), RULES)
def test_nothing_to_do_and_nothing_to_do_it_with(policy: str, placement: str) -> None:
    """VODA-48: zero jobs, zero devices, no node at all, only closed nodes."""
    jobs = [a_job("a", (1, 4)), a_job("b", 2, submit=1)]
    assert decided(a_snapshot([], 8), policy, placement).allocation == {}
    assert decided(a_snapshot([], []), policy, placement).allocation == {}
    for nodes in ([], [a_node("n0", 0)], [a_node("n0", 4, is_open=False)]):
        result = decided(a_snapshot(jobs, nodes), policy, placement)
        assert result.allocation == {"a": 0, "b": 0}
        assert set(result.reasons) == {"a", "b"}


def check_allowed_nodes(before: Snapshot, result: Decided) -> None:
    """Replicas that are new on a node are on an open one whose labels and taints suit them."""
    nodes = before.nodes
    for action in result.decision.plan:
        shape = before.shapes[int(before.jobs.shape[action.row])]
        missing: dict[int, int] = {}
        for node, count in (*action.before.workers, *action.before.ps):
            missing[node] = missing.get(node, 0) + count
        for node, count in (*action.after.workers, *action.after.ps):
            missing[node] = missing.get(node, 0) - count
            if node != ANYWHERE and missing[node] < 0:
                assert nodes.is_open[node]
                assert shape.accepts(nodes.labels[node], nodes.taints[node])
