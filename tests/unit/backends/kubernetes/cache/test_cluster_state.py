"""Cluster state from deltas: jobs find their pods in any order, foreign pods keep names, persisted fields survive."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.job import PersistedState, ReplicaAssignment
from sterna.backends.kubernetes.api.objects import Node, Plain
from sterna.backends.kubernetes.api.resources import NODES, SERVICES, Delta, DeltaKind
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import Stage, assignment_by_row
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.controllers.pods import PodController, expected_pod
from sterna.backends.kubernetes.controllers.recovery import recover
from sterna.backends.kubernetes.pods.gang import ClusterDomain
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.events import EventBuilder
from sterna.kinds.context import ParseContext
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import NOWHERE, Assignment, ResourceKind

NOW = 1_750_000_000.0
GPU = "nvidia.com/gpu"
TYPES: dict[Resource, type[Any]] = {NODES: Node, PODS: Pod, SERVICES: Plain}


class Story:
    """A cluster state and the deltas that it receives."""

    def __init__(self, nodes: int = 3, gpus: int = 4, namespace: str = "") -> None:
        self.now = NOW
        self.state = ClusterState(ParseContext(), Progress(), lambda: self.now, namespace)
        recorder = EventRecorder(EventBuilder("operator"))
        self.controller = PodController(self.state, Timers(), ClusterDomain(), recorder, lambda entry, event: None)
        self.version = 0
        for number in range(nodes):
            room = {"cpu": "8", "memory": "32Gi", GPU: str(gpus)}
            self.see(NODES, {"metadata": {"name": f"node-{number}"}, "status": {"allocatable": room}})
        self.state.refresh()

    def see(self, resource: Resource, document: dict[str, Any], change: DeltaKind = DeltaKind.SEEN) -> None:
        self.version += 1
        meta = {"namespace": "default", "resourceVersion": str(self.version), **document["metadata"]}
        raw = msgspec.json.encode({**document, "metadata": meta})
        self.state.take(Delta(change, resource, msgspec.json.decode(raw, type=TYPES.get(resource, JobObject))))

    def job(self, name: str = "job", uid: str = "uid-1", workers: int = 2, **more: Any) -> None:
        container = {"name": "train", "image": "train", "resources": {"limits": {GPU: 1}}}
        spec = {"workers": workers, "template": {"spec": {"containers": [container]}}}
        stamp = {"creationTimestamp": "2025-06-15T15:06:40Z", "generation": more.pop("generation", 1)}
        meta = {"name": name, "uid": uid, **stamp, **more.pop("metadata", {})}
        self.see(TRAINING_JOBS, {"metadata": meta, "spec": {**spec, **more.pop("spec", {})}, **more})

    def pod(self, index: int = 0, owner: str = "uid-1", change: DeltaKind = DeltaKind.SEEN, **more: Any) -> None:
        labels = {"sterna.dev/job": "job", "sterna.dev/kind": "TrainingJob", "sterna.dev/type": "worker"}
        labels |= {"sterna.dev/index": str(index), "sterna.dev/attempt": str(more.pop("attempt", 1))}
        reference = {"kind": "TrainingJob", "apiVersion": "sterna.dev/v1alpha1", "name": "job", "uid": owner}
        meta: dict[str, Any] = {
            "name": f"job-worker-{index}",
            "uid": more.pop("uid", f"pod-{index}-{owner}"),
            "labels": labels,
            "annotations": {"sterna.dev/assignment": more.pop("assignment", "")},
            "ownerReferences": [{**reference, "controller": True}],
            **more.pop("metadata", {}),
        }
        container = {"name": "train", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
        spec = {"nodeName": more.pop("node", "node-0"), "containers": [container]}
        self.see(PODS, {"metadata": meta, "spec": spec, "status": {"phase": more.pop("phase", "Running")}}, change)

    @property
    def entry(self) -> Any:
        return next(iter(self.state.entries.values()))

    def free(self) -> list[int]:
        self.state.refresh()
        return [int(each) for each in self.state.capacity.table().free[ResourceKind.DEVICES]]


@pytest.mark.parametrize("is_job_first", [True, False])
def test_pods_and_their_job_find_each_other_whichever_is_seen_first(is_job_first: bool) -> None:
    story = Story()
    if is_job_first:
        story.job()
    story.pod()
    if not is_job_first:
        story.job()
    assert [pod.key for pod in story.entry.job.pods.values()] == ["default/job-worker-0"]
    found = story.state.pods.find("pod-0-uid-1")
    assert found is not None
    assert found[0] is story.entry.job


def test_a_predecessors_pod_is_no_pod_of_ours_but_keeps_the_name_and_the_room() -> None:
    """DRAGON-9."""
    story = Story()
    story.pod(owner="uid-0")
    story.job(uid="uid-1")
    assert story.entry.job.pods == {}
    assert story.state.pods.is_taken("default/job-worker-0", "uid-1")
    assert story.free() == [3000, 4000, 4000]
    story.pod(owner="uid-0", change=DeltaKind.GONE)
    assert not story.state.pods.is_taken("default/job-worker-0", "uid-1")
    assert story.free() == [4000, 4000, 4000]


def test_an_older_state_of_a_pod_is_not_believed() -> None:
    story = Story()
    story.job()
    story.pod(phase="Running")
    story.version -= 2
    story.pod(phase="Pending")
    assert next(iter(story.entry.job.pods.values())).state.value == "running"


def test_what_was_asked_to_go_counts_as_going_until_it_is_gone_or_the_server_refuses() -> None:
    story = Story()
    story.job()
    story.pod()
    pod = story.entry.job.pods["worker", 0]
    story.state.pods.mark_deleted(story.entry, pod)
    story.pod(phase="Running")
    assert story.entry.job.pods["worker", 0].is_deleting
    story.state.pods.cancel_deletion(pod.uid)
    assert not story.entry.job.pods["worker", 0].is_deleting


def test_a_pod_that_comes_as_it_was_asked_for_is_no_news_for_its_job() -> None:
    story = Story()
    story.job(workers=1)
    replicas = [ReplicaAssignment("worker", 0, "node-0")]
    story.state.reassign(story.entry, replicas)
    asked_for = expected_pod(story.entry, replicas[0], "job-worker-0", 1, "a=1")
    story.state.pods.expect(story.entry, asked_for)
    story.state.work_queue.drain()
    story.pod(phase="Pending", assignment="a=1")
    assert story.entry.job.pods["worker", 0].uid
    assert not story.state.work_queue.pending()
    assert story.free() == [3000, 4000, 4000]
    story.pod(phase="Pending", assignment="a=1")
    assert not story.state.work_queue.pending()
    story.pod(phase="Running", assignment="a=1")
    assert story.state.work_queue.pending() == [story.entry.key]


def test_other_peoples_pods_are_kept_only_as_what_they_use() -> None:
    story = Story()
    container = {"name": "c", "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}}}
    meta = {"name": "theirs", "uid": "theirs"}
    story.see(PODS, {"metadata": meta, "spec": {"nodeName": "node-1", "containers": [container]}, "status": {}})
    assert story.free() == [4000, 2000, 4000]
    assert story.state.pods.get("theirs") is None
    ended = {"phase": "Succeeded"}
    story.see(PODS, {"metadata": meta, "spec": {"nodeName": "node-1", "containers": [container]}, "status": ended})
    assert story.free() == [4000, 4000, 4000]


def test_a_plain_pod_of_another_namespace_is_no_job_of_ours_and_takes_its_room_all_the_same() -> None:
    """DRAGON-18, 80."""
    story = Story(namespace="training")
    container = {"name": "c", "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}}}
    for number, namespace in enumerate(("default", "training")):
        meta = {"name": "job1", "uid": namespace, "namespace": namespace, "labels": {"sterna.dev/job": "job1"}}
        spec = {"nodeName": f"node-{number}", "containers": [container]}
        story.see(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    assert [entry.name for entry in story.state.entries.values()] == ["training/job1"]
    assert story.free()[0] == 2000


def test_an_object_that_cannot_be_read_is_an_invalid_job_that_asks_for_nothing() -> None:
    story = Story()
    story.see(TF_JOBS, {"metadata": {"name": "odd", "uid": "odd"}, "spec": {"tfReplicaSpecs": 5}})
    assert story.entry.stage is Stage.INVALID
    assert story.entry.outcome[0] == "InvalidTFJobSpec"
    assert not story.entry.wants_to_run
    assert len(story.state.table) == 0


def test_a_standby_reads_the_persisted_state_that_the_leader_writes() -> None:
    story = Story()
    story.job()
    story.job(status={"sterna": {"moves": 2, "attempt": 3}})
    assert (story.entry.job.persisted.moves, story.entry.job.persisted.attempt) == (2, 3)
    story.job(status={"sterna": {"endedAt": NOW}})
    assert story.entry.stage is Stage.ENDED
    story.state.is_standing_by = False
    story.job(status={"sterna": {"moves": 5}})
    assert story.entry.job.persisted.moves == 0, "the leader trusts its own state over a stale object"


def test_what_cannot_be_read_of_a_memory_is_forgotten_and_nothing_else() -> None:
    story = Story()
    story.job(status={"sterna": {"moves": "many"}})
    assert story.entry.job.persisted == PersistedState(enqueued_at=story.entry.parsed_job.submitted_at)


def test_a_job_that_has_ended_is_not_run_again() -> None:
    """DRAGON-48."""
    story = Story()
    condition = {"type": "Succeeded", "status": "True", "reason": "TFJobSucceeded"}
    story.job(status={"conditions": [condition]})
    assert story.entry.stage is Stage.ENDED
    assert not story.entry.wants_to_run


def test_when_nodes_come_and_go_assignments_follow_their_names() -> None:
    story = Story()
    story.job()
    story.state.reassign(
        story.entry, [ReplicaAssignment("worker", 0, "node-1"), ReplicaAssignment("worker", 1, "node-2")]
    )
    assert story.entry.assignment == Assignment(((1, 1), (2, 1)))
    story.see(NODES, {"metadata": {"name": "a-node"}, "status": {"allocatable": {GPU: "4"}}})
    story.state.refresh()
    assert story.entry.assignment == Assignment(((2, 1), (3, 1)))
    assert dict(story.state.assignments) == {story.entry.key: story.entry.assignment}


def test_an_assignment_gives_its_room_back_when_the_job_ends_or_is_deleted() -> None:
    story = Story()
    story.job()
    story.state.reassign(
        story.entry, [ReplicaAssignment("worker", 0, "node-0"), ReplicaAssignment("worker", 1, "node-0")]
    )
    assert story.free() == [2000, 4000, 4000]
    story.job(metadata={"deletionTimestamp": "2025-06-15T15:07:40Z"})
    assert story.free() == [4000, 4000, 4000]
    assert story.entry.assignment == NOWHERE


# Coming back.


def test_a_gang_of_which_a_part_was_made_is_made_whole_as_it_was_meant() -> None:
    story = Story()
    assignment = '{"worker":{"node-0":"0","node-2":"1"}}'
    story.job()
    story.pod(0, node="node-0", assignment=assignment)
    assert recover(story.state, {PodOwnership.OPERATOR: story.controller}, NOW) == 1
    assert story.entry.replicas == (ReplicaAssignment("worker", 0, "node-0"), ReplicaAssignment("worker", 1, "node-2"))
    assert story.entry.job.persisted.attempt == 1


def test_a_gang_that_was_meant_for_a_node_that_is_gone_is_withdrawn() -> None:
    story = Story()
    story.job()
    story.pod(0, node="node-0", assignment='{"worker":{"node-0":"0","node-9":"1"}}')
    assert recover(story.state, {PodOwnership.OPERATOR: story.controller}, NOW) == 0
    assert story.entry.replicas == ()


def test_pods_that_were_asked_to_go_or_belong_to_an_older_attempt_make_no_assignment() -> None:
    story = Story()
    story.job(status={"sterna": {"attempt": 2}})
    story.pod(0, attempt=1, assignment='{"worker":{"node-0":"0-1"}}')
    assert story.controller.find_replicas(story.entry) == []
    story.pod(0, attempt=2, metadata={"deletionTimestamp": "2025-06-15T15:07:40Z"})
    assert story.controller.find_replicas(story.entry) == []


def test_workers_of_one_node_stand_together_in_an_assignment() -> None:
    story = Story()
    story.job(workers=4)
    replicas = [
        ReplicaAssignment("worker", 0, "node-1"),
        ReplicaAssignment("worker", 1, "node-0"),
        ReplicaAssignment("worker", 2, "node-1"),
    ]
    assert assignment_by_row(story.entry.parsed_job, replicas, story.state.capacity.row_of) == Assignment(
        ((1, 2), (0, 1))
    )
