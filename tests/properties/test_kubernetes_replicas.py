"""The next steps are safe and reach the assignment, for any sequence of decisions and pod events.

A small cluster carries out `steps`, late and in any order, while assignments change and pods fail, vanish and are
rejected. It stands for the API server and the kubelets together; the rules under test are the real ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.backends.kubernetes.api.assignment import current_nodes, decode_assignment, encode_assignment
from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.phase import is_running
from sterna.backends.kubernetes.lifecycle.replicas import (
    Need,
    Steps,
    need_of,
    next_steps,
    place_replicas,
    replaces_in_place,
)
from sterna.backends.kubernetes.lifecycle.verdict import VerdictKind, judge
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.cluster import NOWHERE, Assignment
from sterna.model.job import Resizing
from tests.unit.backends.kubernetes.replica_builders import NODES, kube_job, parsed_job, pod, tf_job

CAPACITY = 4000
"""Thousandths of devices on each node."""
LIMIT = 4

JOBS = {
    "parameter servers": tf_job(workers=2, ps=2, minimum=1, maximum=LIMIT, backoff_limit=10**9),
    "in place": parsed_job(workers=2, minimum=1, maximum=LIMIT, resizing=Resizing.IN_PLACE, backoff_limit=10**9),
    "by restart": parsed_job(workers=2, minimum=1, maximum=LIMIT, backoff_limit=10**9),
}

rows = st.integers(0, 2)
"""Few nodes, so that assignments overlap."""


@st.composite
def assignments(draw: st.DrawFn, servers: int) -> Assignment:
    """Somewhere, or nowhere."""
    runs = draw(st.dictionaries(rows, st.integers(1, 2), max_size=2))
    if not runs:
        return NOWHERE
    beside = draw(st.lists(rows, min_size=servers, max_size=servers))
    return Assignment(tuple(runs.items()), tuple(Counter(beside).items()))


class Cluster:
    """One job, and nodes that have room for it and little else."""

    def __init__(self, of: ParsedJob) -> None:
        self.job: KubeJob = kube_job(of, attempt=0)
        self.assignment: Assignment = NOWHERE
        self.foreign = dict.fromkeys(NODES, 0)
        """Devices that others hold."""
        self.now = 0.0

    @property
    def replicas(self) -> list[ReplicaAssignment]:
        return place_replicas(self.job.parsed_job, self.assignment, NODES, current_nodes(self.job))

    def used(self, node: str) -> int:
        live = [each for each in self.job.pods.values() if each.node == node and not each.is_terminated]
        return self.foreign[node] + sum(need_of(self.job.parsed_job, each.type).devices for each in live)

    def has_room(self, node: str, need: Need) -> bool:
        return self.used(node) + need.devices <= CAPACITY

    def plan(self) -> Steps:
        verdict = judge(self.job, self.now, self.replicas)
        if verdict.kind is VerdictKind.STOPPED:
            self.job.persisted.started_at = None
        replaced = tuple(self.job.pods) if verdict.kind is VerdictKind.RESTART else verdict.replicas
        found = next_steps(self.job, self.replicas, self.has_room, self.now, replaced)
        assert found == next_steps(self.job, self.replicas, self.has_room, self.now, replaced)
        return found

    def carry_out(self, plan: Steps) -> None:
        """As the caller of `steps` does: what is asked for is laid over at once."""
        wanted = self.replicas
        for replica in plan.create:
            assert (replica.type, replica.ordinal) not in self.job.pods, "a name was used twice"
            self.job.persisted.attempt = plan.attempt
            made = pod(replica, PodState.PENDING, plan.attempt, wanted)
            self.job.pods[replica.type, replica.ordinal] = made
        for each in plan.delete:
            assert not each.is_deleting
            each.is_deleting = True
        self.check()

    def check(self) -> None:
        live = [each for each in self.job.pods.values() if not each.is_terminated]
        if not replaces_in_place(self.job.parsed_job):
            assert len({each.attempt for each in live}) <= 1, "two attempts at once"
        for node in NODES:
            assert self.used(node) <= CAPACITY, "more than the node has"

    def everything_advances(self) -> None:
        """Pods that were asked to go are gone, the others run, and time passes."""
        self.now += 400.0
        for key in list(self.job.pods):
            self.one_advances(key)
            if key in self.job.pods and self.job.pods[key].is_deleting:
                self.one_advances(key)

    def one_advances(self, key: tuple[str, int]) -> None:
        """Advance one pod: a stopping pod ends, an ended one is removed, a new one runs."""
        row = self.job.pods[key]
        if row.is_deleting and row.is_terminated:
            del self.job.pods[key]
        elif row.is_deleting:
            row.is_terminated = True
        elif row.state is PodState.PENDING:
            row.state = PodState.RUNNING
        if is_running(self.job, self.replicas) and self.job.persisted.started_at is None:
            self.job.persisted.started_at = self.now


EVENTS = ("decide", "decide", "advance", "advance", "step", "step", "fail", "refuse", "vanish", "add_foreign_load")


def happen(cluster: Cluster, event: str, data: st.DataObject) -> None:
    job = cluster.job
    if event == "decide":
        cluster.assignment = data.draw(assignments(job.parsed_job.shape.ps))
    elif event == "advance":
        cluster.everything_advances()
    elif event == "step" and job.pods:
        cluster.one_advances(data.draw(st.sampled_from(sorted(job.pods))))
    elif event == "add_foreign_load":
        node = data.draw(st.sampled_from(NODES))
        cluster.foreign[node] = data.draw(st.integers(0, max(0, CAPACITY - cluster.used(node)) // 1000)) * 1000
    elif job.pods:
        key = data.draw(st.sampled_from(sorted(job.pods)))
        if event == "vanish":
            del job.pods[key]
        elif not job.pods[key].is_terminated:
            row = job.pods[key]
            row.state, row.is_terminated = PodState.FAILED, True
            row.exit_code, row.reason = (1, "") if event == "fail" else (None, "OutOfcpu")
    cluster.check()
    if data.draw(st.integers(0, 3)):
        cluster.carry_out(cluster.plan())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(JOBS)), st.lists(st.sampled_from(EVENTS), min_size=10, max_size=30), st.data())
def test_steps_are_safe_and_reach_the_desired_assignment_whatever_happens(
    which: str, events: Sequence[str], data: st.DataObject
) -> None:
    """DRAGON-12, DRAGON-24, DRAGON-25, DRAGON-50."""
    cluster = Cluster(JOBS[which])
    for event in events:
        happen(cluster, event, data)
    cluster.foreign = dict.fromkeys(NODES, 0)
    for _ in range(12):
        cluster.carry_out(cluster.plan())
        cluster.everything_advances()
    assert cluster.plan().is_settled
    where = Counter(each.node for each in cluster.job.pods.values() if each.type == "worker")
    assert where == Counter({NODES[row]: count for row, count in cluster.assignment.workers})
    if not replaces_in_place(cluster.job.parsed_job):
        assert {each.assignment for each in cluster.job.pods.values()} <= {encode_assignment(cluster.replicas)}
    if cluster.assignment.workers:
        assert ("worker", 0) in cluster.job.pods
        assert sum(each.type == "ps" for each in cluster.job.pods.values()) == cluster.job.parsed_job.shape.ps


@given(assignments(2), assignments(2))
def test_a_replica_that_can_stay_stays_and_keeps_its_index(before: Assignment, after: Assignment) -> None:
    """DRAGON-28, DRAGON-32."""
    of = JOBS["parameter servers"]
    old = place_replicas(of, before, NODES, {})
    new = place_replicas(of, after, NODES, {(replica.type, replica.ordinal): replica.node for replica in old})
    kept = set(old) & set(new)
    for kind in ("ps", "worker"):
        stay = sum((_nodes(old, kind) & _nodes(new, kind)).values())
        lost_to_worker_0 = 1 if kind == "worker" and old and new else 0
        assert sum(replica.type == kind for replica in kept) >= stay - lost_to_worker_0
    assert len({replica[:2] for replica in new}) == len(new)


@given(assignments(2))
def test_replicas_of_an_unchanged_assignment_never_change(assignment: Assignment) -> None:
    for of in JOBS.values():
        once = place_replicas(of, assignment._replace(ps=assignment.ps if of.shape.ps else ()), NODES, {})
        current = {(replica.type, replica.ordinal): replica.node for replica in once}
        assert place_replicas(of, assignment._replace(ps=assignment.ps if of.shape.ps else ()), NODES, current) == once


@given(
    st.sets(st.builds(ReplicaAssignment, st.sampled_from(["ps", "worker"]), st.integers(0, 50), st.sampled_from(NODES)))
)
def test_a_assignment_is_read_as_it_was_written(gang: set[ReplicaAssignment]) -> None:
    assert decode_assignment(encode_assignment(gang)) == sorted(gang)


def _nodes(gang: Sequence[ReplicaAssignment], kind: str) -> Counter[str]:
    return Counter(replica.node for replica in gang if replica.type == kind)
