"""Decisions for a cluster of several GPU types equal the decisions for each type alone.

Small clusters that follow from a seed get a type each and are merged, so that rows and nodes of different types
interleave. Decisions are compared by names, because row numbers differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.engine.gpu_partitions import TYPE_LABELS
from sterna.engine.registry import RuleKind
from sterna.model.cluster import MILLI, Shape, Shapes
from sterna.model.plan import Action, Decision
from sterna.model.reason import Code
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import Column, ColumnSource, Jobs, Snapshot
from sterna.wiring import make_rules, rules_of
from tests.builders import AJob, ANode, ClusterSpec, a_snapshot, after
from tests.properties.clusters import NOW, a_cluster
from tests.properties.test_moves_and_shares import CPU_SHARES, MIGRATIONS, a_shared_cluster
from tests.shared_nodes import SharedCluster, rules_with

KINDS = ("", "t4", "v100")
"""GPU types of the parts; the empty one has no type."""
POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
PLACEMENTS = [info.name for info in rules_of(RuleKind.PLACEMENT) if info.name != "none"]

sizes = st.integers(0, 5)
worlds = given(seed=st.integers(0, 1_000_000), jobs=st.tuples(sizes, sizes, sizes))


@dataclass(frozen=True)
class Typed:
    """One cluster of one type."""

    kind: str
    cluster: ClusterSpec
    serving: tuple[ServingPod, ...]
    rules: Rules

    @property
    def snapshot(self) -> Snapshot:
        return _snapshot(self.cluster, self.serving)


def some_clusters(seed: int, jobs: Sequence[int]) -> list[Typed]:
    random = Random(seed)
    last_action, finished = random.choice((-np.inf, NOW - 61, NOW - 59)), (float(random.randint(1, 5000)),)
    found = []
    for kind, count in zip(KINDS, jobs, strict=True):
        policy, placement = random.choice(POLICIES), random.choice(PLACEMENTS)
        cluster = a_cluster(random.randrange(1_000_000), count, random.randint(1, 3), placement)
        label = random.choice(TYPE_LABELS)
        found.append(
            Typed(
                kind,
                ClusterSpec(
                    tuple(_job_of(job, kind, label) for job in cluster.jobs),
                    tuple(_node_of(node, kind, label) for node in cluster.nodes),
                    NOW,
                    last_action,
                    finished,
                ),
                tuple(_some_pods(random, kind, label)),
                make_rules(policy, placement),
            )
        )
    return found


def _job_of(job: AJob, kind: str, label: str) -> AJob:
    selector = {**_labels(dict(job.shape.selector), kind), **({label: kind} if kind else {})}
    on, ps_on = (tuple((f"{node}{kind}", count) for node, count in replicas) for replicas in (job.on, job.ps_on))
    shape = replace(job.shape, selector=tuple(sorted(selector.items())))
    return replace(job, name=f"{job.name}{kind}", shape=shape, on=on, ps_on=ps_on)


def _node_of(node: ANode, kind: str, label: str) -> ANode:
    labels = {**_labels(node.labels, kind), **({label: kind} if kind else {})}
    return replace(node, name=f"{node.name}{kind}", labels=labels)


def _labels(labels: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return labels that differ by type: else a job without a type could fit on the nodes of a single type."""
    return {f"{key}{kind}": value for key, value in labels.items()}


def _some_pods(random: Random, kind: str, label: str) -> list[ServingPod]:
    selector = ((label, kind),) if kind else ()
    return [
        ServingPod(f"pod{number}{kind}", Shape(random.choice((1, 2)) * MILLI, selector=selector), NOW - 5)
        for number in range(random.choice((0, 0, 1, 2)))
    ]


def _snapshot(cluster: ClusterSpec, serving: Sequence[ServingPod]) -> Snapshot:
    built = a_snapshot(
        cluster.jobs, cluster.nodes, now=cluster.now, last_action=cluster.last_action, finished=cluster.finished
    )
    return replace(built, serving=serving)


def together(clusters: Sequence[Typed], random: Random | None = None) -> tuple[Snapshot, Rules]:
    """All of them as one cluster, in some order; the type of each keeps its rules."""
    jobs = [job for cluster in clusters for job in cluster.cluster.jobs]
    nodes = [node for cluster in clusters for node in cluster.cluster.nodes]
    serving = [pod for cluster in clusters for pod in cluster.serving]
    if random is not None:
        random.shuffle(jobs)
        random.shuffle(nodes)
        random.shuffle(serving)
    cluster = replace(clusters[0].cluster, jobs=tuple(jobs), nodes=tuple(nodes))
    by_type = {cluster.kind: cluster.rules for cluster in clusters if cluster.kind}
    return _snapshot(cluster, tuple(serving)), replace(clusters[0].rules, by_type=by_type)


class NamedAction(NamedTuple):
    """An action with names instead of rows."""

    kind: str
    job: str
    before: object
    after: object
    mark: str


def actions_of(snapshot: Snapshot, decision: Decision) -> list[NamedAction]:
    return [
        NamedAction(
            action.kind.name,
            snapshot.jobs.name_of(action.row),
            _by_name(snapshot, action, "before"),
            _by_name(snapshot, action, "after"),
            action.mark.value,
        )
        for action in decision.plan
    ]


def _by_name(snapshot: Snapshot, action: Action, side: str) -> object:
    assignment = getattr(action, side)
    workers, ps = ([(snapshot.nodes.name[node], count) for node, count in runs] for runs in assignment[:2])
    return workers, ps, assignment.slots


def reasons_of(decision: Decision) -> dict[str, object]:
    """Codes and numbers; where a job cannot run or finds no room, the nodes that are counted differ."""
    return {
        reason.job: reason.code
        if reason.obstacles or reason.code in (Code.NO_NODE, Code.NO_SERVERS)
        else reason.sentence
        for reason in decision.reasons
    }


@settings(max_examples=150, deadline=None)
@worlds
def test_types_are_decided_on_as_if_each_were_a_cluster_by_itself(seed: int, jobs: tuple[int, int, int]) -> None:
    """VODA-13, 79."""
    clusters = some_clusters(seed, jobs)
    snapshot, rules = together(clusters)
    whole = decide(snapshot, rules)
    check(whole.plan, snapshot)
    alone = [(cluster.snapshot, decide(cluster.snapshot, cluster.rules)) for cluster in clusters]
    assert sorted(actions_of(snapshot, whole)) == sorted(each for pair in alone for each in actions_of(*pair))
    assert whole.until == min(decision.until for _, decision in alone)
    assert reasons_of(whole) == {job: why for _, decision in alone for job, why in reasons_of(decision).items()}
    for _, decision in alone:
        own = [reason.job for reason in decision.reasons]
        assert [reason.job for reason in whole.reasons if reason.job in set(own)] == own


@settings(max_examples=100, deadline=None)
@worlds
def test_deciding_again_on_its_own_result_changes_nothing(seed: int, jobs: tuple[int, int, int]) -> None:
    snapshot, rules = together([replace(each, serving=()) for each in some_clusters(seed, jobs)])
    assert list(decide(after(snapshot, decide(snapshot, rules)), rules).plan) == []


@settings(max_examples=60, deadline=None)
@worlds
def test_the_order_of_the_input_does_not_matter(seed: int, jobs: tuple[int, int, int]) -> None:
    """VODA-28, 47."""
    clusters = some_clusters(seed, jobs)
    (one, rules), (other, _) = together(clusters), together(clusters, Random(seed))
    first, second = decide(one, rules), decide(other, rules)
    assert actions_of(one, first) == actions_of(other, second)
    assert first.until == second.until
    assert [reason.sentence for reason in first.reasons] == [reason.sentence for reason in second.reasons]


@settings(max_examples=100, deadline=None)
@worlds
def test_a_job_whose_nodes_are_of_another_type_now_goes_on_as_it_is(seed: int, jobs: tuple[int, int, int]) -> None:
    """VODA-78: nodes get another label under running jobs, and no job is stopped, moved or resized for it."""
    clusters = [replace(each, serving=()) for each in some_clusters(seed, jobs)]
    random = Random(seed)
    clusters = [replace(each, cluster=_relabel(each.cluster, random)) for each in clusters]
    snapshot, rules = together(clusters)
    decision = decide(snapshot, rules)
    check(decision.plan, snapshot)
    for action in decision.plan:
        types = {
            _type_of(snapshot.nodes.labels[node])
            for assignment in action[3:5]
            for node, _ in (*assignment[0], *assignment[1])
        }
        assert len(types) == 1
    assert list(decide(after(snapshot, decision), rules).plan) == []


def _relabel(cluster: ClusterSpec, random: Random) -> ClusterSpec:
    nodes = [
        replace(node, labels={**node.labels, TYPE_LABELS[0]: random.choice(KINDS[1:])})
        if random.random() < 0.4
        else node
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def _type_of(labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in TYPE_LABELS if labels.get(key) in KINDS), "")


# Moves and shares.


@pytest.mark.parametrize(("migration", "cpu_share"), [*((each, "finish") for each in MIGRATIONS), ("specon", "equal")])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000_000), jobs=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_moves_and_shares_of_a_type_are_those_of_a_cluster_by_itself(
    migration: str, cpu_share: str, seed: int, jobs: tuple[int, int]
) -> None:
    """Marks that refer to nodes and to other jobs are translated to the partition."""
    assert cpu_share in CPU_SHARES
    one, other = a_shared_cluster(seed, jobs[0]), a_shared_cluster(seed + 1, jobs[1])
    other = replace(other, restart_seconds=one.restart_seconds, last_event=one.last_event)
    rules = rules_with(migration, cpu_share)
    alone = [
        (action, base, first)
        for instant, base, first in ((one, 0, 0), (other, len(one.jobs), len(one.cores)))
        for action in decide(instant.snapshot, rules).plan
    ]
    snapshot = _merge(one, other)
    decision = decide(snapshot, replace(rules, by_type={"t4": rules}))
    check(decision.plan, snapshot)
    found = {action.key: (action.kind, action.after, action.cpu_share, action.evictor) for action in decision.plan}
    assert found == {
        action.key + base: (
            action.kind,
            action.after._replace(workers=tuple((node + first, count) for node, count in action.after.workers)),
            action.cpu_share,
            action.evictor + base if action.evictor >= 0 else action.evictor,
        )
        for action, base, first in alone
    }


def _merge(one: SharedCluster, other: SharedCluster) -> Snapshot:
    """Merge two clusters; the nodes of the second are of type t4."""
    first, base = len(one.cores), len(one.jobs)
    moved = [
        replace(
            job,
            name=f"{job.name}x",
            on=tuple((node + first, count) for node, count in job.on),
            moved_from=job.moved_from + first if job.moved_from >= 0 else -1,
            evictor=job.evictor + base if job.evictor >= 0 else -1,
        )
        for job in other.jobs
    ]
    devices = [*(one.devices or (0,) * first), *(other.devices or (0,) * len(other.cores))]
    snapshot = replace(
        one,
        jobs=(*one.jobs, *moved),
        cores=(*one.cores, *other.cores),
        devices=tuple(devices),
        closed=one.closed | {node + first for node in other.closed},
    ).snapshot
    return _of_two_types(snapshot, first, base)


def _of_two_types(snapshot: Snapshot, first: int, base: int) -> Snapshot:
    """Nodes and jobs from these numbers on are of type t4."""
    jobs, known = snapshot.jobs, snapshot.shapes.rows
    label = (TYPE_LABELS[0], "t4")
    nodes = replace(
        snapshot.nodes, labels=[{} if node < first else dict([label]) for node in range(len(snapshot.nodes))]
    )
    names = [name for name, each in vars(Jobs).items() if isinstance(each, Column)]
    columns: dict[str, npt.NDArray[Any]] = {name: np.array(getattr(jobs, name)) for name in names}
    columns["shape"] = columns["shape"] + len(known) * (columns["key"] >= base)
    source = ColumnSource([jobs.name_of(row) for row in range(len(jobs))], columns)
    shapes = Shapes((*known, *(replace(shape, selector=(label,)) for shape in known)))
    return replace(snapshot, jobs=Jobs(source), nodes=nodes, shapes=shapes)
