"""PyTorchJobs: elastic ones use torchrun's rendezvous, the others get rank and addresses."""

from __future__ import annotations

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.pod_builder import pod_of, service_of
from sterna.kinds.parsed_job import PodOwnership
from sterna.model.job import Resizing, RestartPolicy
from tests.unit.kinds.kind_builders import group, parsed_job, pytorch_job, variables_of

ELASTIC = pytorch_job({"Worker": group(2, name="pytorch", gpus=1)}, {"minReplicas": 1, "maxReplicas": 3})
GANG = [ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 1, "b")]


def test_an_elastic_job_has_the_bounds_of_its_policy() -> None:
    job = parsed_job(ELASTIC)
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (1, 2, 3)
    assert job.spec.resizing is Resizing.TORCHRUN
    assert job.spec.restart is RestartPolicy.ON_FAILURE
    assert job.ownership is PodOwnership.OPERATOR


def test_elastic_agents_meet_at_worker_0_by_the_name_of_its_service() -> None:
    job = parsed_job(ELASTIC)
    first, second = (variables_of(pod_of(job, replica, GANG, attempt=2)) for replica in GANG)
    assert first["PET_RDZV_ENDPOINT"] == second["PET_RDZV_ENDPOINT"] == "resnet-worker-0.default.svc:23456"
    assert first["PET_NNODES"] == "1:3"
    assert first["PET_RDZV_BACKEND"] == "c10d"
    assert first["PET_RDZV_ID"] == "default-resnet-2"
    assert first["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert first["PET_RDZV_CONF"].endswith("is_host=true")
    assert second["PET_RDZV_CONF"].endswith("is_host=false")
    assert service_of(job, "worker", 0)["spec"]["ports"] == [{"name": "pytorchjob-port", "port": 23456}]


def test_the_elastic_policy_is_passed_to_torchrun() -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd.default",
        "rdzvPort": 2379,
        "rdzvId": "mine",
        "rdzvConf": [{"key": "timeout", "value": "60"}],
        "maxRestarts": 5,
    }
    job = parsed_job(pytorch_job({"Worker": group(2, name="pytorch")}, policy, nprocPerNode="auto"))
    variables = variables_of(pod_of(job, GANG[0], GANG, 1))
    found = {name: value for name, value in variables.items() if name.startswith("PET_")}
    assert found == {
        "PET_NNODES": "1:3",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_BACKEND": "etcd",
        "PET_RDZV_ENDPOINT": "etcd.default:2379",
        "PET_RDZV_ID": "mine",
        "PET_RDZV_CONF": "timeout=60",
        "PET_MAX_RESTARTS": "5",
    }


def test_a_fixed_gang_calls_its_master() -> None:
    job = parsed_job(pytorch_job({"Master": group(name="pytorch"), "Worker": group(2, name="pytorch")}))
    assert (job.spec.minimum, job.spec.maximum, job.shape.ps) == (2, 2, 1)
    gang = [ReplicaAssignment("master", 0, "a"), *GANG]
    found = [variables_of(pod_of(job, replica, gang, 1)) for replica in gang]
    assert [each["RANK"] for each in found] == ["0", "1", "2"]
    assert {each["WORLD_SIZE"] for each in found} == {"3"}
    assert {each["MASTER_ADDR"] for each in found} == {"resnet-master-0.default.svc"}
    assert {each["MASTER_PORT"] for each in found} == {"23456"}
    labels = pod_of(job, gang[0], gang, 1)["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-role"] == "master"


def test_a_master_with_devices_is_counted_as_the_first_worker() -> None:
    job = parsed_job(pytorch_job({"Master": group(name="pytorch", gpus=1), "Worker": group(3, name="pytorch", gpus=1)}))
    assert (job.spec.minimum, job.spec.maximum, job.shape.ps) == (4, 4, 0)
    gang = [ReplicaAssignment("worker", index, "a") for index in range(4)]
    pods = [pod_of(job, replica, gang, 1) for replica in gang]
    assert [each["metadata"]["name"] for each in pods] == [
        "resnet-master-0",
        "resnet-worker-0",
        "resnet-worker-1",
        "resnet-worker-2",
    ]
    assert [variables_of(each)["RANK"] for each in pods] == ["0", "1", "2", "3"]
    assert {variables_of(each)["MASTER_ADDR"] for each in pods} == {"resnet-master-0.default.svc"}
    service = service_of(job, "worker", 0)
    assert service["metadata"]["name"] == "resnet-master-0"
    assert service["spec"]["selector"].items() <= pods[0]["metadata"]["labels"].items()


def test_a_job_of_a_master_alone_has_one_worker() -> None:
    job = parsed_job(pytorch_job({"Master": group(name="pytorch"), "Worker": group(0, name="pytorch")}))
    assert (job.spec.minimum, job.spec.maximum, job.shape.ps) == (1, 1, 0)
    assert job.spec.worker.type == "master"


def test_annotations_make_a_job_elastic_that_restarts_to_change_its_size() -> None:
    manifest = pytorch_job({"Worker": group(2, name="pytorch")})
    manifest["metadata"]["annotations"] = {"sterna.dev/min-workers": "1", "sterna.dev/max-workers": "8"}
    job = parsed_job(manifest)
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (1, 2, 8)
    assert job.spec.resizing is Resizing.RESTART


def test_a_part_of_a_gpu_is_asked_for_by_kubeshare_s_annotations() -> None:
    gpu_fraction = {"kubeshare/gpu_request": "0.2501", "kubeshare/gpu_limit": "0.5", "kubeshare/gpu_mem": "1073741824"}
    job = parsed_job(pytorch_job({"Worker": group(2, name="pytorch", annotations=gpu_fraction)}))
    assert job.ownership is PodOwnership.KUBESHARE
    assert job.shape.devices == 251
    assert job.shape.is_fraction
