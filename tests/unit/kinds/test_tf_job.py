"""TFJobs: parsed fields and the environment of their replicas (DRAGON-1 to 10, 32, 77)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.gang import ClusterDomain
from sterna.backends.kubernetes.pods.pod_builder import pod_name, pod_of, service_of
from sterna.kinds.context import KubeShare, ParseContext
from sterna.kinds.parse import is_managed
from sterna.kinds.parsed_job import CleanPods, GpuFraction, PodOwnership
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import Shape
from sterna.model.job import Resizing, RestartPolicy
from tests.unit.kinds.kind_builders import (
    group,
    job_object,
    old_manifest,
    parsed_job,
    pod_object,
    tf_job,
    training_job,
    variables_of,
)

GIB = 1 << 30
SHAPE = Shape(0, 4000, 8 * GIB, 1, 4000, 8 * GIB)


def replicas(*nodes: str, ps: int = 1) -> list[ReplicaAssignment]:
    servers = [ReplicaAssignment("ps", index, nodes[0]) for index in range(ps)]
    return [*servers, *(ReplicaAssignment("worker", index, node) for index, node in enumerate(nodes))]


def config_of(pod: dict[str, Any], container: int = 0) -> dict[str, Any]:
    found = json.loads(variables_of(pod, container)["TF_CONFIG"])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("file", "ownership", "devices"),
    [
        ("edragon-tfjob-cpu.yaml", PodOwnership.OPERATOR, 0),
        ("edragon-tfjob-gpu.yaml", PodOwnership.OPERATOR, 1000),
        ("edragon-tfjob-kubeshare.yaml", PodOwnership.KUBESHARE, 500),
    ],
)
def test_a_manifest_of_e_dragon_is_read_as_it_is(file: str, ownership: PodOwnership, devices: int) -> None:
    """DRAGON-1, DRAGON-19, DRAGON-34, DRAGON-35."""
    job = parsed_job(old_manifest(file))
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (1, 4, 4)
    assert (job.ownership, job.shape.devices) == (ownership, devices)
    assert (job.shape.cpus, job.shape.ps, job.shape.ps_cpus, job.shape.ps_memory_bytes) == (4000, 1, 4000, 8 * GIB)
    assert job.clean_pods is CleanPods.ALL
    assert job.spec.restart is RestartPolicy.ON_FAILURE
    assert job.spec.grace_seconds == 0
    assert job.gpu_fraction == (GpuFraction(500, 1000, 3189243904) if devices == 500 else None)


def test_what_is_not_said_has_kubeflow_s_defaults() -> None:
    """DRAGON-3: one replica, never restarted, running pods cleaned up, types in any case."""
    job = parsed_job(tf_job({"ps": group(None), "WORKER": group(None)}, low=None, high=None))
    assert {each.type: each.count for each in job.spec.replicas} == {"worker": 1, "ps": 1}
    assert job.spec.restart is RestartPolicy.NEVER
    assert job.clean_pods is CleanPods.RUNNING
    assert job.spec.backoff_limit is None
    assert job.spec.resizing is Resizing.RESTART


def test_workers_of_a_bounded_job_come_and_go_in_place() -> None:
    assert parsed_job(tf_job()).spec.resizing is Resizing.IN_PLACE


def test_bounds_may_be_annotations_where_the_definition_drops_the_fields() -> None:
    annotations = {"sterna.dev/min-workers": "2", "sterna.dev/max-workers": "5", "sterna.dev/priority": "3"}
    job = parsed_job(tf_job(low=None, high=None, annotations=annotations))
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (2, 2, 5)
    assert job.spec.priority == 3


def test_the_run_policy_goes_before_fields_of_the_specification() -> None:
    policy = {"cleanPodPolicy": "None", "backoffLimit": 2, "ttlSecondsAfterFinished": 60, "suspend": True}
    job = parsed_job(tf_job(cleanPodPolicy="All", activeDeadlineSeconds=9, runPolicy=policy))
    assert job.clean_pods is CleanPods.NONE
    assert (job.spec.backoff_limit, job.spec.ttl_seconds, job.spec.deadline_seconds) == (2, 60, 9)
    assert job.is_suspended


def test_a_preferred_node_is_kept() -> None:
    """DRAGON-76."""
    preferring: dict[str, Any] = {"node-preference": "node-1"}
    assert parsed_job(tf_job(**preferring)).node_preference == "node-1"


def test_when_it_was_submitted_is_the_object_s_time() -> None:
    assert parsed_job(tf_job()).submitted_at == 1714564800.0


def test_a_pod_has_its_name_its_node_and_its_owner() -> None:
    """DRAGON-4, DRAGON-5, DRAGON-14."""
    gang = replicas("a", "b")
    pod = pod_of(parsed_job(tf_job()), gang[2], gang, attempt=3)
    assert pod["metadata"]["name"] == "digits-worker-1"
    assert pod["spec"]["nodeName"] == "b"
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TFJob", "uid-1", True)
    labels = pod["metadata"]["labels"]
    assert labels["group-name"] == "kubeflow.org"
    assert labels["tf-job-name"] == "digits"
    assert (labels["tf-replica-type"], labels["tf-replica-index"]) == ("worker", "1")
    assert (labels["sterna.dev/type"], labels["sterna.dev/index"]) == ("worker", "1")
    assert labels["sterna.dev/attempt"] == "3"
    assert len(labels["tf-job-workerid"]) == 5
    assert "tf-job-role" not in labels


def test_each_start_of_a_replica_has_an_identity_of_its_own() -> None:
    gang = replicas("a", "b")
    job = parsed_job(tf_job())
    ids = {
        pod_of(job, replica, gang, attempt)["metadata"]["labels"]["tf-job-workerid"]
        for replica in gang
        for attempt in (1, 2)
    }
    assert len(ids) == 6


@pytest.mark.parametrize(
    ("groups", "master"),
    [
        ({"PS": group(), "Worker": group(2)}, "digits-worker-0"),
        ({"PS": group(), "Chief": group(), "Worker": group(2)}, "digits-chief-0"),
    ],
)
def test_the_chief_or_else_worker_0_is_the_master(groups: dict[str, Any], master: str) -> None:
    """DRAGON-5."""
    job = parsed_job(tf_job(groups))
    gang = [ReplicaAssignment(each.type, 0, "a") for each in job.spec.replicas]
    pods = [pod_of(job, replica, gang, 1) for replica in gang]
    named = [each["metadata"]["name"] for each in pods if each["metadata"]["labels"].get("tf-job-role") == "master"]
    assert named == [master]


def test_tf_config_names_as_many_workers_as_there_may_ever_be() -> None:
    """DRAGON-7, DRAGON-32: it does not change when workers come and go."""
    gang = replicas("a")
    pod = pod_of(parsed_job(tf_job()), gang[1], gang, 1)
    config = config_of(pod)
    assert config["cluster"]["worker"] == [f"digits-worker-{index}.default.svc:2222" for index in range(4)]
    assert config["cluster"]["ps"] == ["digits-ps-0.default.svc:2222"]
    assert config["task"] == {"type": "worker", "index": 0}
    assert config["environment"] == "cloud"


def test_the_cluster_s_domain_is_appended_to_names() -> None:
    """DRAGON-7: CUSTOM_CLUSTER_DOMAIN."""
    gang = replicas("a")
    pod = pod_of(parsed_job(tf_job()), gang[0], gang, 1, ClusterDomain(cluster_domain="cluster.local"))
    assert config_of(pod)["cluster"]["ps"] == ["digits-ps-0.default.svc.cluster.local:2222"]


def test_a_port_of_the_user_s_own_is_used() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 4000}]
    job = parsed_job(tf_job({"PS": group(ports=ports), "Worker": group(2)}))
    gang = replicas("a")
    assert config_of(pod_of(job, gang[1], gang, 1))["cluster"]["ps"] == ["digits-ps-0.default.svc:4000"]
    assert service_of(job, "ps", 0)["spec"]["ports"] == [{"name": "tfjob-port", "port": 4000}]
    assert pod_of(job, gang[0], gang, 1)["spec"]["containers"][0]["ports"] == ports


def test_an_evaluator_is_not_part_of_the_cluster_that_trains() -> None:
    job = parsed_job(tf_job({"PS": group(), "Worker": group(), "Evaluator": group()}))
    gang = [*replicas("a"), ReplicaAssignment("evaluator", 0, "a")]
    config = config_of(pod_of(job, gang[-1], gang, 1))
    assert set(config["cluster"]) == {"ps", "worker"}
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_every_container_knows_its_peers_and_has_a_default_port() -> None:
    """DRAGON-3, DRAGON-7."""
    sidecar = {"name": "proxy", "image": "registry.example/proxy:1", "env": [{"name": "TF_CONFIG", "value": "mine"}]}
    groups = {"PS": group(), "Worker": group(2)}
    groups["Worker"]["template"]["spec"]["containers"].append(sidecar)
    gang = replicas("a")
    pod = pod_of(parsed_job(tf_job(groups)), gang[1], gang, 1)
    assert config_of(pod, 0) == config_of(pod, 1)
    first, second = pod["spec"]["containers"]
    assert first["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    assert "volumeMounts" not in second


def test_a_headless_service_finds_one_replica() -> None:
    """DRAGON-6."""
    job = parsed_job(tf_job())
    service = service_of(job, "worker", 2)
    assert service["metadata"]["name"] == "digits-worker-2"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [{"name": "tfjob-port", "port": 2222}]
    gang = [*replicas("a"), ReplicaAssignment("worker", 2, "b")]
    labels = pod_of(job, gang[-1], gang, 1)["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    others = pod_of(job, gang[1], gang, 1)["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= others.items()


@pytest.mark.parametrize("how", ["annotation", "port"])
def test_a_preemptible_job_s_chiefs_run_beside_its_parameter_servers(how: str) -> None:
    """DRAGON-77, for several parameter servers."""
    ports = [{"name": "tfjob-port", "containerPort": 2222}, {"name": "chief-port", "containerPort": 2223}]
    groups = {"PS": group(2, ports=ports) if how == "port" else group(2), "Worker": group(2)}
    annotations = {"sterna.dev/preemptible": "true"} if how == "annotation" else {}
    job = parsed_job(tf_job(groups, annotations=annotations))
    gang = replicas("a", "b", ps=2)
    config = config_of(pod_of(job, ReplicaAssignment("worker", 1, "b"), gang, 1))
    chiefs = ["digits-ps-0.default.svc:2223", "digits-ps-1.default.svc:2223"]
    assert config["cluster"]["worker"][:2] == chiefs
    assert len(config["cluster"]["worker"]) == 2 + 4
    assert config["task"] == {"type": "worker", "index": 3}
    assert config_of(pod_of(job, gang[1], gang, 1))["task"] == {"type": "ps", "index": 1}
    assert service_of(job, "ps", 1)["spec"]["ports"][1] == {"name": "chief-port", "port": 2223}
    assert len(service_of(job, "worker", 1)["spec"]["ports"]) == 1


def test_a_chief_with_devices_is_counted_as_the_first_worker() -> None:
    """Rules know workers with devices and others without; under all names it stays the chief."""
    job = parsed_job(tf_job({"PS": group(), "Chief": group(gpus=1, cpu="4"), "Worker": group(2, gpus=1)}))
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (2, 3, 5)
    assert (job.shape.devices, job.shape.cpus, job.shape.ps) == (1000, 4000, 1)
    assert job.leading == ("chief",)
    gang = replicas("a", "b", "b")
    names = [pod_of(job, replica, gang, 1)["metadata"]["name"] for replica in gang]
    assert names == ["digits-ps-0", "digits-chief-0", "digits-worker-0", "digits-worker-1"]
    assert [pod_name(job, replica.type, replica.ordinal) for replica in gang] == names
    first = pod_of(job, gang[1], gang, 1)
    assert first["metadata"]["labels"]["sterna.dev/type"] == "worker"
    config = config_of(first)
    assert config["task"] == {"type": "chief", "index": 0}
    assert len(config["cluster"]["worker"]) == 4
    assert config_of(pod_of(job, gang[3], gang, 1))["task"] == {"type": "worker", "index": 1}


def test_restart_policies_are_translated_for_the_kubelet() -> None:
    """DRAGON-42, DRAGON-43: exit codes are judged by us; what has completed is never run again."""
    policies = {}
    for written in ("Always", "OnFailure", "Never", "ExitCode"):
        job = parsed_job(tf_job({"PS": group(restart="OnFailure"), "Worker": group(2, restart=written)}))
        gang = replicas("a")
        policies[written] = (job.spec.restart.value, pod_of(job, gang[1], gang, 1)["spec"]["restartPolicy"])
        assert pod_of(job, gang[0], gang, 1)["spec"]["restartPolicy"] == "OnFailure"
    assert policies == {
        "Always": ("OnFailure", "OnFailure"),
        "OnFailure": ("OnFailure", "OnFailure"),
        "Never": ("Never", "Never"),
        "ExitCode": ("ExitCode", "Never"),
    }


def test_jobs_marked_for_kubeshare_are_taken_only_where_that_is_wanted() -> None:
    """DRAGON-10."""
    marked = job_object(tf_job(annotations={"DRAGON_KUBESHARE": "true"}))
    plain = job_object(tf_job())
    taken = {
        mode: [is_managed(each, TF_JOBS, ParseContext(kubeshare=mode)) for each in (marked, plain)]
        for mode in KubeShare
    }
    assert taken == {
        KubeShare.BOTH: [True, True],
        KubeShare.OFF: [False, True],
        KubeShare.ONLY: [True, False],
    }


def test_an_operator_for_kubeshare_leaves_all_other_kinds_to_the_one_beside_it() -> None:
    """DRAGON-10."""
    job, pod = job_object(training_job()), pod_object({"metadata": {"name": "a", "labels": {"sterna.dev/job": "a"}}})
    for each, kind in ((job, TRAINING_JOBS), (pod, PODS)):
        assert is_managed(each, kind, ParseContext(kubeshare=KubeShare.OFF))
        assert not is_managed(each, kind, ParseContext(kubeshare=KubeShare.ONLY))


def test_a_job_of_another_manager_is_ignored() -> None:
    theirs = job_object(tf_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    ours = job_object(tf_job(runPolicy={"managedBy": "sterna.dev/operator"}))
    assert not is_managed(theirs, TF_JOBS)
    assert is_managed(ours, TF_JOBS)


def test_a_job_created_again_under_the_same_name_is_another_one() -> None:
    """DRAGON-9."""
    first, second = parsed_job(tf_job(), uid="one"), parsed_job(tf_job(), uid="two")
    assert first.ref.key == second.ref.key
    assert first.ref != second.ref
