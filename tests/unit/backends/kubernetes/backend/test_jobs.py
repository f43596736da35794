"""Jobs on a cluster in memory: from the object to pods with nodes in them, statuses, events, and the end."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import EVENTS, NODES, SERVICES, Urgency, Verb
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_runs import USUAL, Chosen, Cluster, is_over


def a_cluster(nodes: int = 2, gpus: int = 4, rules: Chosen = USUAL) -> Cluster:
    cluster = Cluster(rules=rules)
    for number in range(nodes):
        cluster.nodes.add(f"node-{number}", gpus=gpus)
    cluster.start()
    return cluster


def status_of(cluster: Cluster, name: str) -> Object:
    kind = TRAINING_JOBS if cluster.kube.find(TRAINING_JOBS, name) is not None else TF_JOBS
    status: Object = cluster.kube.get(kind, name).get("status") or {}
    return status


def condition(cluster: Cluster, name: str, type_: str) -> Object:
    found = [each for each in status_of(cluster, name)["conditions"] if each["type"] == type_]
    return found[0] if found else {}


def events(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    return [(each["reason"], each["note"]) for each in cluster.kube.items(EVENTS) if each["regarding"]["name"] == name]


def writes(cluster: Cluster, **wanted: Any) -> list[str]:
    """Names of the objects that were written to, of those writes that have these fields."""
    assert cluster.operator is not None
    sent = cluster.operator.client.sent
    return [write.name for write in sent if all(getattr(write, key) == value for key, value in wanted.items())]


def test_a_job_becomes_pods_bound_to_nodes_and_its_status_lists_them() -> None:
    """DRAGON-8, 14."""
    cluster = a_cluster()
    cluster.submit("hello", seconds=5.0)
    cluster.run(3.0)
    pod = cluster.kube.get(PODS, "hello-worker-0")
    assert pod["spec"]["nodeName"] == "node-0"
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
    assert status_of(cluster, "hello")["phase"] == "Running"
    assert status_of(cluster, "hello")["nodes"] == ["node-0"]
    cluster.run(10.0)
    assert status_of(cluster, "hello")["phase"] == "Succeeded"
    assert condition(cluster, "hello", "Running")["status"] == "False"
    assert {"enqueueTime", "startRunTime", "finishedTime"} <= status_of(cluster, "hello").keys()


def test_up_to_running_a_job_costs_one_status_and_one_event() -> None:
    cluster = a_cluster(10, 8)
    for number in range(80):
        cluster.submit(f"job-{number:02d}", seconds=1000.0)
    cluster.run(20.0)
    assert set(cluster.phases().values()) == {"Running"}
    assert len(writes(cluster, subresource="status")) == 80
    assert len(writes(cluster, resource=EVENTS)) == 80
    assert len(writes(cluster, resource=PODS)) == 80


def test_a_verdict_is_written_before_statuses_of_running_jobs() -> None:
    cluster = a_cluster()
    cluster.submit("runs", seconds=1000.0)
    cluster.submit("never", workers=9)
    cluster.run(5.0)
    assert status_of(cluster, "runs")["phase"] == "Running"
    assert set(writes(cluster, subresource="status", urgency=Urgency.STATUS)) == {"runs"}
    assert set(writes(cluster, subresource="status", urgency=Urgency.VERDICT)) == {"never"}


def test_a_quiet_cluster_is_left_alone() -> None:
    cluster = a_cluster()
    cluster.submit("busy", 2, seconds=10_000.0)
    cluster.submit("waits", 8)
    cluster.run(60.0)
    operator = cluster.operator
    assert operator is not None
    before, rounds = len(operator.client.sent), operator.controller.rounds
    cluster.run(600.0)
    assert len(operator.client.sent) == before
    assert operator.controller.rounds == rounds


def test_a_job_that_can_never_run_shows_it_within_two_seconds_also_in_a_burst() -> None:
    cluster = a_cluster()
    for number in range(200):
        cluster.submit(f"job-{number:03d}", seconds=1000.0)
    cluster.submit("huge", 50)
    cluster.submit("picky", pod={"nodeSelector": {"zone": "moon"}})
    cluster.run(2.0)
    assert status_of(cluster, "huge")["reason"] == (
        "cannot run: it needs 50 workers at once and the whole cluster has room for 8."
    )
    assert "both nodes lack the label zone=moon" in status_of(cluster, "picky")["reason"]
    assert condition(cluster, "huge", "Scheduled")["reason"] == "TooLarge"
    assert [reason for reason, _ in events(cluster, "huge")] == ["Waiting"]


def test_the_status_of_a_waiting_job_names_what_is_missing() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit("first", 3, seconds=100.0)
    cluster.run(2.0)
    cluster.submit("second", 2)
    cluster.run(3.0)
    assert status_of(cluster, "second")["phase"] == "Waiting"
    assert status_of(cluster, "second")["reason"].startswith("waits: ")
    assert cluster.pods("second") == []


def test_gangs_are_whole_or_absent() -> None:
    """DRAGON-12."""
    cluster = a_cluster(2, 4)
    cluster.submit_tf("small", 1, 1, seconds=20.0)
    cluster.run(2.0)
    cluster.submit("large", 8, seconds=5.0)
    for _ in range(30):
        cluster.run(1.0)
        assert len(cluster.pods("large")) in (0, 8)
    assert status_of(cluster, "large")["phase"] == "Succeeded"


def test_a_large_gang_is_looked_at_for_many_of_its_pods_at_once() -> None:
    cluster = a_cluster(16, 4)
    cluster.submit("large", 64, seconds=60.0)
    cluster.run(5.0)
    assert status_of(cluster, "large")["phase"] == "Running"
    assert cluster.operator is not None
    backend = cluster.operator.backend
    entry = next(iter(backend.state.entries.values()))
    for _ in range(3):
        backend.state.work_queue.enqueue(entry)
        backend.wait(backend.clock())
    at = entry.reconciled_at
    assert at < backend.timers.next_at < at + 0.1
    cluster.run(1.0)
    assert entry.reconciled_at > at


def test_jobs_of_the_same_second_keep_their_order_of_arrival_across_a_restart() -> None:
    cluster = a_cluster(1, 4)
    cluster.run(1.0 - cluster.kube.now % 1.0)
    cluster.submit("last-by-name", 4, seconds=100.0)
    cluster.run(0.4)
    created = [cluster.submit("a-later-one", 4)["metadata"]["creationTimestamp"]]
    cluster.run(0.5)
    created += [each["metadata"]["creationTimestamp"] for each in cluster.kube.items(TRAINING_JOBS)]
    assert len(set(created)) == 1
    cluster.run(10.0)
    cluster.crash()
    cluster.run(10.0)
    assert status_of(cluster, "last-by-name")["phase"] == "Running"
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == {f"last-by-name-worker-{index}" for index in range(4)}
    assert writes(cluster, verb=Verb.DELETE) == []


def test_what_runs_elsewhere_takes_room_and_gives_it_back() -> None:
    """DRAGON-18: a foreign pod with limits only (DRAGON-19)."""
    cluster = a_cluster(1, 4)
    container = {"name": "x", "image": "x", "resources": {"limits": {GPU: 3}, "requests": {GPU: 3}}}
    spec = {"nodeName": "node-0", "containers": [container]}
    cluster.kube.create(PODS, {"metadata": {"name": "theirs"}, "spec": spec})
    cluster.run(2.0)
    cluster.submit("ours", 2, seconds=3.0)
    cluster.run(5.0)
    assert status_of(cluster, "ours")["phase"] == "Waiting"
    cluster.nodes.end("theirs")  # it has ended, though the object is still there
    cluster.run(10.0)
    assert status_of(cluster, "ours")["phase"] == "Succeeded"


def test_an_invalid_object_shows_its_error_and_does_not_affect_other_jobs() -> None:
    """DRAGON-2."""
    cluster = a_cluster()
    cluster.kube.create(TF_JOBS, {"metadata": {"name": "bad"}, "spec": {"tfReplicaSpecs": {"Worker": 7}}})
    cluster.submit("good", seconds=3.0)
    cluster.run(10.0)
    assert status_of(cluster, "good")["phase"] == "Succeeded"
    failed = condition(cluster, "bad", "Failed")
    assert failed["reason"] == "InvalidTFJobSpec"
    assert failed["message"].endswith(".")
    assert cluster.pods("bad") == []


def test_an_invalid_object_runs_once_it_is_corrected() -> None:
    cluster = a_cluster()
    cluster.submit("job", 2, most=1, seconds=3.0, restartPolicy="Sometimes")
    cluster.run(3.0)
    assert status_of(cluster, "job")["phase"] == "Failed"
    cluster.kube.patch(TRAINING_JOBS, "job", {"spec": {"restartPolicy": "Never"}})
    cluster.run(10.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"


def test_a_deleted_job_frees_its_room_at_once() -> None:
    """DRAGON-49."""
    cluster = a_cluster(1, 4)
    cluster.submit("first", 4, seconds=1000.0)
    cluster.submit("second", 4, seconds=3.0)
    cluster.run(5.0)
    cluster.kube.delete(TRAINING_JOBS, "first")
    cluster.run(10.0)
    assert cluster.phases() == {"second": "Succeeded"}
    assert cluster.pods("first") == []


def test_a_job_created_again_under_the_same_name_waits_until_its_predecessor_is_gone() -> None:
    """DRAGON-9."""
    cluster = a_cluster()
    cluster.submit("job", seconds=1000.0, annotations={"fake/stop-seconds": "8"})
    cluster.run(3.0)
    old = cluster.kube.get(PODS, "job-worker-0")["metadata"]["uid"]
    cluster.kube.delete(TRAINING_JOBS, "job")
    cluster.submit("job", seconds=5.0)
    cluster.run(4.0)
    assert cluster.kube.get(PODS, "job-worker-0")["metadata"]["uid"] == old
    cluster.run(30.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"


def test_orphaned_pods_of_a_deleted_job_keep_running_and_keep_their_capacity() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit("job", 4, seconds=1000.0)
    cluster.run(3.0)
    cluster.kube.patch(TRAINING_JOBS, "job", {"metadata": {"finalizers": ["orphan"]}})  # as --cascade=orphan does
    cluster.kube.delete(TRAINING_JOBS, "job")
    for pod in cluster.pods("job"):
        cluster.kube.patch(PODS, pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    cluster.kube.patch(TRAINING_JOBS, "job", {"metadata": {"finalizers": None}})
    cluster.submit("other", 1)
    cluster.run(10.0)
    assert len(cluster.pods("job")) == 4
    assert cluster.phases() == {"other": "Waiting"}


@pytest.mark.parametrize(
    ("policy", "left"), [("All", []), ("Running", ["job-worker-0"]), ("None", ["job-ps-0", "job-worker-0"])]
)
def test_what_is_left_of_a_job_goes_by_its_clean_pod_policy(policy: str, left: list[str]) -> None:
    """DRAGON-46."""
    cluster = a_cluster()
    cluster.submit_tf("job", 1, 1, seconds=3.0, cleanPodPolicy=policy)
    cluster.run(20.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == left


def test_a_job_is_deleted_when_its_time_to_live_is_over() -> None:
    """DRAGON-47."""
    cluster = a_cluster()
    cluster.submit("job", seconds=2.0, ttl=60)
    cluster.run(30.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"
    cluster.run(60.0)
    assert cluster.kube.find(TRAINING_JOBS, "job") is None


def test_a_job_that_is_active_for_too_long_fails() -> None:
    """DRAGON-44."""
    cluster = a_cluster()
    cluster.submit("job", seconds=1000.0, deadline=30)
    cluster.run(50.0)
    assert status_of(cluster, "job")["phase"] == "Failed"
    assert condition(cluster, "job", "Failed")["reason"] == "DeadlineExceeded"
    assert [pod for pod in cluster.pods() if not is_over(pod)] == []


def test_a_suspended_job_gives_up_its_pods_and_comes_back_when_it_may() -> None:
    cluster = a_cluster()
    cluster.submit("job", seconds=10.0)
    cluster.run(3.0)
    cluster.kube.patch(TRAINING_JOBS, "job", {"spec": {"suspend": True}})
    cluster.run(10.0)
    assert cluster.pods() == []
    assert status_of(cluster, "job")["phase"] == "Suspended"
    cluster.kube.patch(TRAINING_JOBS, "job", {"spec": {"suspend": False}})
    cluster.run(20.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"


def test_replicas_that_call_each_other_have_services_and_removed_ones_lose_theirs() -> None:
    """DRAGON-6, 28."""
    cluster = a_cluster(1, 4)
    cluster.submit_tf("job", 1, 3, seconds=200.0)
    cluster.run(5.0)
    names = [each["metadata"]["name"] for each in cluster.kube.items(SERVICES)]
    assert names == ["job-ps-0", "job-worker-0", "job-worker-1", "job-worker-2"]
    cluster.submit("rival", 3, seconds=500.0)
    cluster.run(20.0)
    assert [each["metadata"]["name"] for each in cluster.kube.items(SERVICES)][:2] == ["job-ps-0", "job-worker-0"]
    assert len(cluster.pods("rival")) == 3
    assert sorted(pod["metadata"]["name"] for pod in cluster.pods("job")) == ["job-ps-0", "job-worker-0"]


def test_a_job_that_is_alone_gets_no_service() -> None:
    cluster = a_cluster()
    cluster.submit("job", seconds=100.0)
    cluster.run(5.0)
    assert cluster.kube.items(SERVICES) == []


def test_created_and_deleted_pods_are_events() -> None:
    """DRAGON-53."""
    cluster = a_cluster()
    cluster.submit_tf("job", 1, 2, seconds=4.0)
    cluster.run(20.0)
    messages = dict(events(cluster, "job"))
    assert messages["SuccessfulCreatePod"].startswith("Created 3 pods on node-0: job-ps-0, job-worker-0, job-worker-1.")
    assert "SuccessfulDeletePod" in messages
    assert messages["TFJobSucceeded"] == "completed."


def test_a_cordoned_node_keeps_its_pods_and_accepts_none() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit("first", 1, seconds=30.0)
    cluster.run(3.0)
    cluster.kube.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
    cluster.run(1.0)
    cluster.submit("second", 1, seconds=3.0)
    cluster.run(10.0)
    assert cluster.phases() == {"first": "Running", "second": "Waiting"}
    cluster.kube.patch(NODES, "node-0", {"spec": {"unschedulable": False}})
    cluster.run(30.0)
    assert cluster.phases() == {"first": "Succeeded", "second": "Succeeded"}


def test_writes_of_pods_are_creations_and_guarded_deletions_only() -> None:
    cluster = a_cluster()
    cluster.submit_tf("job", 1, 1, seconds=3.0)
    cluster.run(20.0)
    assert cluster.operator is not None
    pods = [write for write in cluster.operator.client.sent if write.resource == PODS]
    assert {write.verb for write in pods} == {Verb.CREATE, Verb.DELETE}
    assert all(b'"preconditions":{"uid":' in write.body for write in pods if write.verb is Verb.DELETE)
