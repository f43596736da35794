"""Recovery of an operator after the cluster changed without it: edited objects, services seen before their job, lost
nodes, and events that cannot be processed."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, EVENTS, SERVICES, Verb, Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import DeletedService, WroteStatus
from sterna.backends.kubernetes.cache.job_entry import JobEntry, JobEvent, Stage
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.events import EventBuilder
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.snapshot import JobKey
from tests.simulation.kubernetes_mpi import FakeMpiOperator, an_mpi_job
from tests.simulation.kubernetes_runs import USUAL, Chosen, Cluster

LONG = 1e5
TOO_FEW = {"spec": {"workers": {"min": 5, "max": 2}}}
"""Bounds that cannot be."""


def a_cluster(nodes: int = 1, gpus: int = 4, seed: int = 0, rules: Chosen = USUAL) -> Cluster:
    cluster = Cluster(seed, rules=rules)
    for number in range(nodes):
        cluster.nodes.add(f"node-{number}", cpus=16, gpus=gpus)
    cluster.start()
    return cluster


def entry_of(cluster: Cluster, name: str) -> JobEntry:
    assert cluster.operator is not None
    entry = cluster.operator.backend.state.jobs.find(f"default/{name}")
    assert entry is not None
    return entry


def status_of(cluster: Cluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = cluster.kube.get(TRAINING_JOBS, name)["status"]
    return status


# A successor.


@pytest.mark.parametrize("policy", ["elastic-fifo", "dragon"])
def test_an_mpi_job_grows_after_a_restart_though_its_launcher_runs_beside_its_workers(policy: str) -> None:
    """VODA-67: the launcher is placed by another scheduler and has no assignment."""
    cluster = a_cluster(gpus=4, rules=Chosen(policy, "stay"))
    FakeMpiOperator(cluster.kube)
    cluster.submit("short", 2, seconds=40)
    cluster.run(3)
    cluster.kube.create(MPI_JOBS, an_mpi_job("m", 1, 4, seconds=LONG))
    cluster.run(10)
    cluster.crash()
    cluster.run(5)
    assert {replica.type for replica in entry_of(cluster, "m").replicas} == {"worker"}
    cluster.run(150)
    assert sum(replica.type == "worker" for replica in entry_of(cluster, "m").replicas) == 4


@pytest.mark.parametrize("seed", range(3))
def test_services_seen_before_their_job_are_not_created_again(seed: int) -> None:
    """DRAGON-6."""
    cluster = a_cluster(2, seed=seed)
    cluster.submit_tf("t", 2, 2, seconds=LONG)
    cluster.run(10)
    successor = cluster.crash()
    cluster.run(30)
    assert not [write for write in successor.client.sent if write.resource == SERVICES]
    assert entry_of(cluster, "t").services == {("ps", 0): True, ("worker", 0): True, ("worker", 1): True}


def test_a_job_that_ended_stays_ended_whatever_is_made_of_it_since() -> None:
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=5)
    cluster.run(20)
    cluster.kube.patch(TRAINING_JOBS, "a", TOO_FEW)
    cluster.crash()
    cluster.run(10)
    cluster.kube.patch(TRAINING_JOBS, "a", {"spec": {"workers": {"min": 1, "max": 1}}})
    cluster.run(60)
    assert status_of(cluster, "a")["phase"] == "Succeeded"
    assert (entry_of(cluster, "a").stage, entry_of(cluster, "a").replicas) == (Stage.ENDED, ())


def test_a_running_job_that_became_invalid_does_not_fail_before_its_pods_have_stopped() -> None:
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=LONG)
    cluster.run(5)
    cluster.kube.patch(TRAINING_JOBS, "a", TOO_FEW)
    cluster.run(5)
    cluster.crash()
    cluster.run(10)
    status = status_of(cluster, "a")
    assert (status["phase"], "min 5 is more than max 2" in status["reason"]) == ("Running", True)
    assert not [each for each in status["conditions"] if each["type"] == "Failed"]
    cluster.kube.delete(PODS, "a-worker-0")
    cluster.run(60)
    assert status_of(cluster, "a")["phase"] == "Failed"


def test_the_invalid_condition_of_a_running_job_is_cleared_once_its_spec_is_valid() -> None:
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=LONG)
    cluster.run(5)
    cluster.kube.patch(TRAINING_JOBS, "a", TOO_FEW)
    cluster.run(40)
    assert "min 5" in status_of(cluster, "a")["reason"]
    cluster.kube.patch(TRAINING_JOBS, "a", {"spec": {"workers": {"min": 1, "max": 1}}})
    cluster.run(60)
    assert "min 5" not in status_of(cluster, "a")["reason"]


def test_the_time_that_an_ended_job_is_kept_is_counted_from_its_end_not_from_a_restart() -> None:
    """DRAGON-47. Its persisted state is lost, so that only its status has the end."""
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=5, ttl=100)
    cluster.run(60)
    cluster.kube.patch(TRAINING_JOBS, "a", {"status": {"sterna": None}}, "status")
    cluster.crash()
    cluster.run(30)
    assert cluster.kube.find(TRAINING_JOBS, "a") is not None
    cluster.run(30)
    assert cluster.kube.find(TRAINING_JOBS, "a") is None


# What people and nodes do.


def test_the_deadline_stands_still_while_its_user_has_a_job_suspended() -> None:
    cluster = a_cluster()
    cluster.submit("s", 2, seconds=LONG, deadline=60)
    cluster.run(20)
    cluster.kube.patch(TRAINING_JOBS, "s", {"spec": {"suspend": True}})
    cluster.run(50)
    cluster.crash()
    cluster.run(50)
    cluster.kube.patch(TRAINING_JOBS, "s", {"spec": {"suspend": False}})
    cluster.run(20)
    assert cluster.phases() == {"s": "Running"}
    cluster.run(40)
    assert cluster.phases() == {"s": "Failed"}


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-tiresias", "tiresias", "srjf", "dragon"])
def test_a_gang_that_lost_a_node_and_is_below_its_minimum_waits_as_a_whole(policy: str) -> None:
    """DRAGON-12, 50."""
    cluster = a_cluster(3, gpus=1, rules=Chosen(policy, "stay"))
    cluster.submit_tf("a", 3, 3, seconds=LONG)
    cluster.run(10)
    lost = cluster.kube.get(PODS, "a-worker-2")["spec"]["nodeName"]
    cluster.lose(lost, evicts=True)
    cluster.run(90)
    assert (cluster.phases(), cluster.pods()) == ({"a": "Waiting"}, [])
    cluster.heal(lost)
    cluster.run(60)
    assert cluster.phases() == {"a": "Running"}


@pytest.mark.parametrize(("least", "most", "workers"), [(1, 2, 2), (4, 8, 0)])
def test_changed_bounds_of_a_running_job_hold_under_dragon(least: int, most: int, workers: int) -> None:
    cluster = a_cluster(rules=Chosen("dragon", "pack"))
    cluster.submit_tf("a", 1, 4, seconds=LONG)
    cluster.submit("b", 1, seconds=LONG)
    cluster.run(90)
    cluster.kube.patch(TF_JOBS, "a", {"spec": {"min-instances": least, "max-instances": most}})
    cluster.run(90)
    assert sum("worker" in pod["metadata"]["name"] for pod in cluster.pods("a")) == workers


def test_a_plain_pod_that_is_on_its_way_does_not_come_again_once_its_record_is_deleted() -> None:
    """DRAGON-89."""
    cluster = a_cluster(2)
    container = {"name": "train", "image": "train", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": "p", "labels": {"sterna.dev/job": "p"}, "annotations": {"fake/stop-seconds": "10"}}
    cluster.kube.create(PODS, {"metadata": meta, "spec": {"nodeName": "node-0", "containers": [container]}})
    cluster.run(5)
    assert cluster.operator is not None
    entry = entry_of(cluster, "p")
    move = Action(ActionKind.MIGRATE, JobKey(entry.key), 0, entry.assignment, Assignment(((1, 1),)))
    cluster.operator.backend.apply(Decision(Plan([move])))
    cluster.run(3)
    cluster.kube.delete(CONFIG_MAPS, "sterna-move-p")
    cluster.kube.delete(PODS, "p")
    cluster.run(60)
    assert cluster.kube.find(PODS, "p") is None
    assert cluster.operator.backend.state.jobs.find("default/p") is None


# What goes wrong.


def test_one_piece_of_news_that_cannot_be_taken_in_does_not_take_the_others_with_it() -> None:
    cluster = a_cluster()
    cluster.run(1)
    assert cluster.operator is not None
    mishaps = list[str]()
    cluster.operator.on_error = lambda error: mishaps.append(str(error))
    odd = cluster.submit("odd", 1)["metadata"]["uid"]

    def reject_the_odd_one(event: JobEvent, uid: str) -> None:
        if event is JobEvent.CREATED and uid == odd:
            raise ValueError("anything")

    cluster.operator.on_job_event = reject_the_odd_one
    cluster.submit("good", 1, seconds=LONG)
    cluster.kube.advance(2)
    cluster.run(10)
    assert cluster.phases()["good"] == "Running"
    assert mishaps == ["anything"]


def test_one_job_that_cannot_be_looked_at_does_not_keep_the_others_from_going_on() -> None:
    cluster = a_cluster()
    uid = cluster.submit("odd", 1, seconds=5)["metadata"]["uid"]
    cluster.submit("good", 1, seconds=5)
    assert cluster.operator is not None
    operator, mishaps = cluster.operator, list[str]()

    def refuse(what: JobEvent, about: str) -> None:
        if what is JobEvent.COMPLETED and about == uid:
            raise ValueError("anything")

    operator.on_job_event = refuse
    operator.on_error = lambda error: mishaps.append(str(error))
    cluster.run(60)
    assert cluster.phases() == {"good": "Succeeded", "odd": "Succeeded"}
    assert mishaps == ["anything"]


def test_one_job_whose_status_raises_does_not_keep_other_statuses_from_being_written() -> None:
    cluster = a_cluster()
    cluster.submit("odd", 1, seconds=LONG)
    cluster.submit("good", 1, seconds=LONG)
    assert cluster.operator is not None
    mishaps = list[Exception]()
    cluster.operator.on_error = mishaps.append
    cluster.run(0.2)
    entry_of(cluster, "odd").job.persisted.enqueued_at = cast(float, "no time at all")
    cluster.run(10)
    assert cluster.phases()["good"] == "Running"
    assert mishaps


def test_a_service_is_deleted_by_its_uid_and_again_if_that_was_refused() -> None:
    cluster = a_cluster()
    cluster.submit_tf("t", 1, 1, seconds=LONG)
    cluster.run(5)
    assert cluster.operator is not None
    backend, entry = cluster.operator.backend, entry_of(cluster, "t")
    uid = cluster.kube.get(SERVICES, "t-worker-0")["metadata"]["uid"]
    write = backend.pods._delete_service(entry, ("worker", 0))
    assert uid in write.body.decode()
    assert write.tag == DeletedService(entry.key, ("worker", 0))
    backend.write_results.handle(WriteResult(write, 500), cluster.kube.now)
    assert entry.services["worker", 0]
    assert entry.retry.at > cluster.kube.now


def test_a_rejected_status_is_retried_with_back_off() -> None:
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=LONG)
    cluster.run(5)
    assert cluster.operator is not None
    status_writer, entry, waits = cluster.operator.backend.status_writer, entry_of(cluster, "a"), list[float]()
    write = Write(Verb.MERGE, TRAINING_JOBS, "default", "a", b"{}", "status", tag=WroteStatus(entry.key))
    for _ in range(7):
        entry.status.due_at = float("inf")
        status_writer.on_write_result(entry, WriteResult(write, 403, "Forbidden"), 100.0)
        waits.append(entry.status.due_at - 100.0)
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    status_writer.on_write_result(entry, WriteResult(write, 200), 100.0)
    assert entry.status.rejections == 0


def test_a_repeated_event_is_counted_as_a_series() -> None:
    cluster = a_cluster()
    cluster.submit("a", 1, seconds=LONG)
    cluster.run(5)
    recorder, counts = EventRecorder(EventBuilder("operator")), list[int]()
    for _ in range(3):
        recorder.record_deleted(entry_of(cluster, "a"), [*entry_of(cluster, "a").job.pods.values()], 5.0)
        (write,) = recorder.drain()
        assert write.resource == EVENTS
        recorder.on_write_result(WriteResult(write, 409, "AlreadyExists"), 6.0)
        (again,) = recorder.drain()
        counts.append(msgspec.json.decode(again.body)["series"]["count"])
    assert counts == [2, 3, 4]
