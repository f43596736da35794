"""Decisions carried out on a cluster in memory: growth, preemption, serving pods, moves on request, shares, and what a
snapshot shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest
from sterna.backends.kubernetes.server.request_processor import RequestProcessor
from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import Assignment, ResourceKind
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.snapshot import JobKey, Jobs, Snapshot, compute_totals
from sterna.wiring import make_rules
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_rules import stamp
from tests.fakes.replica import FakeReplica
from tests.simulation.kubernetes_runs import Chosen, Cluster, Incarnation
from tests.unit.backends.kubernetes.backend.test_jobs import a_cluster, status_of

COLUMNS = [name for name in vars(Jobs) if hasattr(getattr(Jobs, name), "__set_name__")]


def operator_of(cluster: Cluster) -> Incarnation:
    assert cluster.operator is not None
    return cluster.operator


def observe(cluster: Cluster) -> Snapshot:
    return operator_of(cluster).backend.observe()


def is_consistent(snapshot: Snapshot) -> None:
    jobs = snapshot.jobs
    names = [(jobs.submit.item(row), jobs.name_of(row)) for row in range(len(jobs))]
    assert names == sorted(names)
    assert [snapshot.assignment_of(row).size for row in range(len(jobs))] == jobs.workers.tolist()
    running = jobs.workers > 0
    assert (jobs.workers <= jobs.maximum)[running].all()
    assert (jobs.first_start[running] <= snapshot.now).all()
    assert (jobs.waiting_since <= snapshot.now).all()
    assert (jobs.attained >= 0).all()
    assert snapshot.nodes.free.min(initial=0) >= 0
    stock = compute_totals(jobs, snapshot.nodes, snapshot.shapes)
    assert (snapshot.free_units, snapshot.held_units) == (stock.free_units, stock.held_units)


@pytest.mark.parametrize(
    ("policy", "placement"),
    [
        ("elastic-fifo", "stay"),
        ("srjf", "spread"),
        ("elastic-tiresias", "pack"),
        ("dragon", "topology"),
        ("ffdl", "stay"),
    ],
)
def test_what_is_observed_is_consistent_at_every_instant(policy: str, placement: str) -> None:
    cluster = a_cluster(3, 4, Chosen(policy, placement))
    for number in range(12):
        cluster.submit(f"job-{number:02d}", 1 + number % 3, most=1 + number % 5, seconds=5.0 + 3 * number)
        cluster.submit_tf(f"tf-{number:02d}", 1, 1 + number % 4, seconds=5.0 + number)
        cluster.run(2.0)
        is_consistent(observe(cluster))
    for _ in range(60):
        cluster.run(5.0)
        is_consistent(observe(cluster))
    assert set(cluster.phases().values()) == {"Succeeded"}


def test_looking_changes_nothing_and_columns_are_read_only() -> None:
    cluster = a_cluster()
    cluster.submit("one", 2, seconds=100.0)
    cluster.submit("two", 9)
    cluster.run(5.0)
    one, other = observe(cluster), observe(cluster)
    for name in COLUMNS:
        assert np.array_equal(getattr(one.jobs, name), getattr(other.jobs, name), equal_nan=True)
        with pytest.raises(ValueError, match="read-only"):
            getattr(one.jobs, name)[0] = 0
    assert dict(one.assignments) == dict(other.assignments)


def test_a_plan_applied_is_seen_at_once_and_applied_again_is_stale() -> None:
    cluster = a_cluster()
    cluster.run(1.0)
    cluster.submit("one", 2)
    backend, kube = operator_of(cluster).backend, cluster.kube
    while not len(backend.observe().jobs):
        backend.wait(kube.now + 0.1)
    snapshot = backend.observe()
    rules = make_rules("elastic-fifo", "stay")
    decision = decide(snapshot, rules)
    check(decision.plan, snapshot)
    actions = list(decision.plan.actions)
    assert list(backend.apply(decision)) == [Outcome.APPLIED]
    after = backend.observe()
    assert {action.key: action.after for action in actions} == dict(after.assignments)
    assert after.last_action == after.now
    assert not decide(after, rules).plan.actions
    assert list(backend.apply(decision)) == [Outcome.STALE]


def test_an_action_for_a_node_that_has_closed_meanwhile_is_stale() -> None:
    cluster = a_cluster(1, 4)
    cluster.run(1.0)
    cluster.submit("one", 2)
    backend = operator_of(cluster).backend
    while not len(backend.observe().jobs):
        backend.wait(cluster.kube.now + 0.1)
    key = JobKey(backend.observe().jobs.key.item(0))
    backend.state.capacity.distrust("node-0", cluster.kube.now + 100.0)
    action = Action(ActionKind.START, key, 0, Assignment(), Assignment(((0, 2),)))
    assert list(backend.apply(Decision(Plan([action])))) == [Outcome.STALE]


def test_time_run_and_devices_used_are_up_to_date_while_a_job_runs() -> None:
    cluster = a_cluster()
    cluster.submit("job", 2, gpus=2, seconds=100.0)
    cluster.run(3.0)
    before = observe(cluster).jobs
    cluster.run(10.0)
    after = observe(cluster).jobs
    assert after.executed.item(0) - before.executed.item(0) == pytest.approx(10.0)
    assert after.attained.item(0) - before.attained.item(0) == pytest.approx(40.0)


def test_a_job_grows_into_room_and_shrinks_for_others_without_falling_below_its_minimum() -> None:
    """DRAGON-24, 25, 30, 32."""
    cluster = a_cluster(1, 4)
    cluster.submit_tf("elastic", 1, 4, seconds=500.0)
    cluster.run(5.0)
    assert len(cluster.pods("elastic")) == 5
    uid = cluster.kube.get(PODS, "elastic-worker-0")["metadata"]["uid"]
    cluster.submit("rival", 3, seconds=20.0)
    cluster.run(10.0)
    assert sorted(pod["metadata"]["name"] for pod in cluster.pods("elastic")) == ["elastic-ps-0", "elastic-worker-0"]
    assert status_of(cluster, "rival")["phase"] == "Running"
    cluster.run(40.0)
    assert len(cluster.pods("elastic")) == 5
    assert cluster.kube.get(PODS, "elastic-worker-0")["metadata"]["uid"] == uid


def test_a_new_pod_waits_until_the_pod_it_replaces_is_gone() -> None:
    """DRAGON-23: and no other job takes the capacity meanwhile."""
    cluster = a_cluster(1, 4)
    cluster.submit("low", 4, seconds=1000.0, priority=-5, annotations={"fake/stop-seconds": "8"}, grace=20)
    cluster.run(3.0)
    cluster.submit("high", 4, seconds=5.0, priority=0)
    cluster.run(3.0)
    cluster.submit("late", 1, seconds=5.0, priority=-5)
    cluster.run(2.0)
    assert cluster.pods("high") == []
    assert cluster.pods("late") == []
    assert "its place is being cleared" in status_of(cluster, "high").get("reason", "its place is being cleared")
    cluster.run(12.0)
    assert status_of(cluster, "high")["phase"] in ("Running", "Succeeded")


def serving_pod(name: str, gpus: int) -> dict[str, object]:
    container = {"name": "x", "image": "x", "resources": {"limits": {GPU: gpus}, "requests": {GPU: gpus}}}
    return {"metadata": {"name": name, "annotations": {"SERVING_POD": "true"}}, "spec": {"containers": [container]}}


def test_room_is_made_and_kept_for_a_serving_pod_until_its_own_scheduler_binds_it() -> None:
    """DRAGON-54, 56, 57, 59."""
    cluster = a_cluster(1, 4)
    cluster.submit_tf("job", 1, 4, seconds=1000.0)
    cluster.run(5.0)
    cluster.kube.create(PODS, serving_pod("serve", 2))
    cluster.submit("greedy", 1, seconds=1000.0)
    cluster.run(10.0)
    assert len([pod for pod in cluster.pods("job") if "worker" in pod["metadata"]["name"]]) <= 2
    assert "nodeName" not in cluster.kube.get(PODS, "serve")["spec"]
    used = sum(1 for pod in cluster.pods() if pod["spec"].get("nodeName") and "ps" not in pod["metadata"]["name"])
    assert used <= 2
    binding = b'{"metadata":{"name":"serve"},"target":{"kind":"Node","name":"node-0"}}'
    assert cluster.kube.handle("POST", "/api/v1/namespaces/default/pods/serve/binding", "", binding).status == 201
    cluster.run(10.0)
    assert observe(cluster).serving == ()
    assert cluster.kube.get(PODS, "serve")["status"]["phase"] == "Running"


def test_a_deleted_serving_pod_withdraws_its_reservation() -> None:
    """DRAGON-58."""
    cluster = a_cluster(1, 2)
    cluster.submit("job", 2, seconds=1000.0)
    cluster.run(3.0)
    cluster.kube.create(PODS, serving_pod("serve", 4))
    cluster.run(2.0)
    assert [pod.name for pod in observe(cluster).serving] == ["default/serve"]
    cluster.kube.delete(PODS, "serve", gracePeriodSeconds=0)
    cluster.run(2.0)
    assert observe(cluster).serving == ()


def a_service(cluster: Cluster) -> RequestProcessor:
    operator = operator_of(cluster)
    service = RequestProcessor(operator.backend, operator.client, FakeReplica())
    operator.before_reconcile.append(service.process_requests)
    return service


def test_a_worker_moves_on_request_and_keeps_its_index_while_the_others_run_on() -> None:
    """DRAGON-70, 72, 74."""
    cluster = a_cluster(3, 4)
    cluster.submit_tf("job", 2, 2, seconds=1000.0)
    cluster.run(5.0)
    service = a_service(cluster)
    source = cluster.kube.get(PODS, "job-worker-1")["spec"]["nodeName"]
    other = cluster.kube.get(PODS, "job-worker-0")["metadata"]["uid"]
    service.endpoints.move_requests.put(PodMoveRequest(source, "job-worker-1"))
    cluster.run(10.0)
    moved = cluster.kube.get(PODS, "job-worker-1")
    assert moved["spec"]["nodeName"] != source
    assert moved["status"]["phase"] == "Running"
    assert cluster.kube.get(PODS, "job-worker-0")["metadata"]["uid"] == other
    assert f",job,{source},{moved['spec']['nodeName']}\n" in service.specon_csv.text()
    assert status_of(cluster, "job")["sterna"]["replicaMoves"] == {"worker-1": 1}


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param(lambda source: PodMoveRequest(source, "nobody"), id="unknown pod"),
        pytest.param(lambda source: PodMoveRequest("node-9", "job-worker-1"), id="wrong node"),
        pytest.param(lambda source: PodMoveRequest(source, "job-ps-0"), id="parameter server"),
    ],
)
def test_requests_that_make_no_sense_come_to_nothing(request_of: Callable[[str], PodMoveRequest]) -> None:
    """DRAGON-69."""
    cluster = a_cluster(3, 4)
    cluster.submit_tf("job", 2, 2, seconds=1000.0)
    cluster.run(5.0)
    before = {pod["metadata"]["uid"] for pod in cluster.pods()}
    service = a_service(cluster)
    service.endpoints.move_requests.put(request_of(cluster.kube.get(PODS, "job-worker-1")["spec"]["nodeName"]))
    cluster.run(10.0)
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == before


def a_sharing_job() -> Cluster:
    """One that asks for 400m on a node without devices."""
    cluster = a_cluster(1, 0)
    container = {"name": "train", "image": "train", "resources": {"requests": {"cpu": "400m"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    cluster.kube.create(TRAINING_JOBS, {"metadata": {"name": "job"}, "spec": {"workers": 1, "template": template}})
    cluster.run(5.0)
    return cluster


def set_cpu_share(cluster: Cluster, cpu_share: float) -> None:
    backend = operator_of(cluster).backend
    snapshot = backend.observe()
    assignment = snapshot.assignment_of(0)
    key = JobKey(snapshot.jobs.key.item(0))
    action = Action(ActionKind.SET_CPU_SHARE, key, 0, assignment, assignment, cpu_share=cpu_share)
    backend.apply(Decision(Plan([action])))
    cluster.run(2.0)


def requested_cpus(cluster: Cluster) -> str:
    container = cluster.kube.get(PODS, "job-worker-0")["spec"]["containers"][0]
    return str(container["resources"]["requests"]["cpu"])


def test_a_share_is_put_into_force_while_the_pod_runs() -> None:
    cluster = a_sharing_job()
    set_cpu_share(cluster, 0.5)
    assert requested_cpus(cluster) == "200m"
    assert operator_of(cluster).backend.observe().has_cpu_shares


def test_a_resize_for_which_its_node_has_no_room_is_withdrawn_until_the_share_changes() -> None:
    """Without capacity the resize stays Deferred, and CPU that the pod does not have would be counted."""
    cluster = a_sharing_job()
    set_cpu_share(cluster, 0.5)
    set_cpu_share(cluster, 1.0)
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    pending["lastTransitionTime"] = stamp(cluster.kube.now)
    granted = {"name": "train", "ready": True, "resources": {"requests": {"cpu": "200m"}}}
    status = {"conditions": [pending], "containerStatuses": [{**granted, "state": {"running": {}}}]}
    cluster.kube.patch(PODS, "job-worker-0", {"status": status}, "status")
    cluster.run(8.0)
    assert requested_cpus(cluster) == "400m"
    cluster.run(4.0)
    assert requested_cpus(cluster) == "200m"
    sent = len(operator_of(cluster).client.sent)
    cluster.run(60.0)
    assert len(operator_of(cluster).client.sent) == sent, "it is left alone"
    cluster.kube.patch(PODS, "job-worker-0", {"status": {"conditions": []}}, "status")
    set_cpu_share(cluster, 0.75)
    assert requested_cpus(cluster) == "300m"


def test_jobs_that_need_no_devices_are_counted_by_their_cpus_where_there_are_none() -> None:
    cluster = a_cluster(1, 0)
    container = {"name": "train", "image": "train", "resources": {"requests": {"cpu": "3"}}}
    template = {"spec": {"containers": [container]}}
    for name in ("a", "b", "c"):
        cluster.kube.create(TRAINING_JOBS, {"metadata": {"name": name}, "spec": {"workers": 1, "template": template}})
    cluster.run(5.0)
    assert sorted(cluster.phases().values()) == ["Running", "Running", "Waiting"]
    assert observe(cluster).nodes.unit is ResourceKind.CPUS


def test_bounds_changed_by_the_user_count_from_then_on() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit_tf("job", 1, 2, seconds=1000.0)
    cluster.run(5.0)
    assert len(cluster.pods("job")) == 3
    cluster.kube.patch(TF_JOBS, "job", {"spec": {"max-instances": 4}})
    cluster.run(5.0)
    assert len(cluster.pods("job")) == 5
