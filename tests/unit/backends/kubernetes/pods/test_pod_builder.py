"""Pod bodies: the user's template is kept, assignment and environment are added."""

from __future__ import annotations

from typing import Any

from sterna.backends.kubernetes.api.assignment import decode_assignment
from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.pod_builder import binding_of, pod_of, share_pod_of
from sterna.kinds.labels import ASSIGNMENT
from tests.unit.kinds.kind_builders import (
    group,
    parsed_job,
    pytorch_job,
    template,
    tf_job,
    training_job,
    variables_of,
)

ALONE = [ReplicaAssignment("worker", 0, "a")]


def the_pod(manifest: dict[str, Any], gang: list[ReplicaAssignment] | None = None) -> dict[str, Any]:
    replicas = gang or ALONE
    return pod_of(parsed_job(manifest), replicas[-1], replicas, attempt=2, generation=5)


def test_unknown_fields_of_a_template_are_carried_along_untouched() -> None:
    odd = {"spec": {"containers": [{"name": "x", "image": "i", "futureField": {"a": [1, None]}}], "runtimeHints": 7}}
    pod = the_pod(training_job(template={"metadata": {"labels": {"team": "vision"}}, **odd}))
    assert pod["spec"]["runtimeHints"] == 7
    assert pod["spec"]["containers"][0]["futureField"] == {"a": [1, None]}
    assert pod["metadata"]["labels"]["team"] == "vision"


def test_the_agent_finds_its_folder_and_identity() -> None:
    pod = the_pod(training_job(workers=2), [ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 1, "b")])
    variables = variables_of(pod)
    told = {name: value for name, value in variables.items() if name.startswith("STERNA_")}
    assert told == {
        "STERNA_DIR": "/run/sterna",
        "STERNA_JOB": "mnist",
        "STERNA_TYPE": "worker",
        "STERNA_INDEX": "1",
        "STERNA_RANK": "1",
        "STERNA_SIZE": "2",
        "STERNA_ATTEMPT": "2",
        "STERNA_GENERATION": "5",
        "STERNA_TERMINATION_LOG": "/dev/termination-log",
    }
    assert {"name": "sterna-agent", "emptyDir": {}} in pod["spec"]["volumes"]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert mounts == [{"name": "sterna-agent", "mountPath": "/run/sterna"}]


def test_container_migration_s_scripts_find_their_node_and_name() -> None:
    variables = variables_of(the_pod(training_job()))
    assert variables["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert variables["NODE_IP"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    assert variables["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_what_the_user_set_stays_unless_it_must_be_right() -> None:
    env = [
        {"name": "NODE_IP", "value": "10.0.0.1"},
        {"name": "RANK", "value": "9"},
        {"name": "PET_NNODES", "value": "7"},
        {"name": "MINE", "value": "$(STERNA_RANK)"},
    ]
    volumes = [{"name": "sterna-agent", "hostPath": {"path": "/tmp/agent"}}]
    given = template("pytorch", env=env, terminationMessagePath="/tmp/last", pod={"volumes": volumes})
    manifest = pytorch_job({"Master": group(name="pytorch"), "Worker": {"template": given}})
    pod = the_pod(manifest, [ReplicaAssignment("master", 0, "a"), ReplicaAssignment("worker", 0, "a")])
    variables = variables_of(pod)
    assert variables["NODE_IP"] == "10.0.0.1"
    assert variables["RANK"] == "1"
    assert variables["PET_NNODES"] == "7"
    assert variables["STERNA_TERMINATION_LOG"] == "/tmp/last"
    names = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert names.index("STERNA_RANK") < names.index("MINE")
    assert len(names) == len(set(names))
    assert pod["spec"]["volumes"] == volumes


def test_a_folder_of_the_user_s_own_at_the_agent_s_place_is_left_there() -> None:
    mounts = [{"name": "shared", "mountPath": "/run/sterna"}]
    pod = the_pod(training_job(template=template("x", volumeMounts=mounts)))
    assert pod["spec"]["containers"][0]["volumeMounts"] == mounts


def test_one_pod_of_a_gang_holds_the_assignment_of_the_whole_gang() -> None:
    gang = [
        ReplicaAssignment("ps", 0, "a"),
        ReplicaAssignment("worker", 0, "a"),
        ReplicaAssignment("worker", 1, "b"),
        ReplicaAssignment("worker", 3, "b"),
    ]
    told = {pod_of(parsed_job(tf_job()), replica, gang, 1)["metadata"]["annotations"][ASSIGNMENT] for replica in gang}
    assert [decode_assignment(text) for text in told] == [sorted(gang)]


def test_the_assignment_annotation_of_a_large_gang_is_short() -> None:
    gang = [ReplicaAssignment("worker", index, f"node-{index // 8:03d}") for index in range(512)]
    pod = pod_of(parsed_job(training_job(workers=512)), gang[511], gang, 1)
    assert len(pod["metadata"]["annotations"][ASSIGNMENT]) < 2000
    assert variables_of(pod)["STERNA_RANK"] == "511"


def test_a_template_is_not_changed_by_the_pods_that_are_made_of_it() -> None:
    job = parsed_job(tf_job({"PS": group(), "Worker": group(2, env=[{"name": "A", "value": "b"}])}))
    gang = [ReplicaAssignment("ps", 0, "a"), ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 1, "b")]
    before = repr(job.templates)
    first = [pod_of(job, replica, gang, 1) for replica in gang]
    assert repr(job.templates) == before
    assert [pod_of(job, replica, gang, 1) for replica in gang] == first


def test_pods_of_all_types_have_the_tolerations_of_workers() -> None:
    """With a node in it, a pod that does not tolerate NoExecute would be deleted without a word."""
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}
    groups = {"PS": group(), "Worker": group(2, pod={"tolerations": [toleration]})}
    pod = pod_of(parsed_job(tf_job(groups)), ReplicaAssignment("ps", 0, "a"), [ReplicaAssignment("ps", 0, "a")], 1)
    assert pod["spec"]["tolerations"] == [toleration]


def test_a_share_pod_names_its_part_of_a_gpu() -> None:
    """DRAGON-35, DRAGON-36."""
    annotations = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "3189243904"}
    groups = {"PS": group(), "Worker": group(2, annotations=annotations)}
    job = parsed_job(tf_job(groups, annotations={"DRAGON_KUBESHARE": "true"}))
    gang = [ReplicaAssignment("ps", 0, "a"), ReplicaAssignment("worker", 0, "a", "abcde")]
    share = share_pod_of(job, gang[1], gang, 1)
    assert (share["apiVersion"], share["kind"]) == ("kubeshare.nthu/v1", "SharePod")
    assert share["metadata"]["name"] == "digits-worker-0"
    assert share["spec"]["nodeName"] == "a"
    found = share["metadata"]["annotations"]
    assert found.items() >= {**annotations, "kubeshare/GPUID": "abcde"}.items()
    server = share_pod_of(job, gang[0], gang, 1)
    assert "kubeshare/GPUID" not in server["metadata"]["annotations"]


def test_a_training_job_s_part_of_a_gpu_brings_its_part_of_the_memory() -> None:
    job = parsed_job(training_job(resources={"gpu": 0.25}))
    replica = ReplicaAssignment("worker", 0, "a", "abcde")
    found = share_pod_of(job, replica, [replica], 1, gpu_memory_bytes=16 << 30)["metadata"]["annotations"]
    assert found["kubeshare/gpu_request"] == "0.25"
    assert found["kubeshare/gpu_limit"] == "1"
    assert found["kubeshare/gpu_mem"] == str(4 << 30)


def test_a_binding_is_meant_for_one_pod() -> None:
    binding = binding_of("default", "keras-worker-0", "uid-7", "node-1")
    assert binding["metadata"]["uid"] == "uid-7"
    assert binding["target"]["name"] == "node-1"
