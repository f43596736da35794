"""TrainingJobs on a cluster: the manifest that runs on one machine, and its image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.pod_builder import pod_of
from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.loading import load
from sterna.kinds.parsed_job import CleanPods, PodOwnership
from sterna.kinds.parsing.documents import read_documents
from sterna.model.job import Resizing, RestartPolicy
from tests.unit.kinds.kind_builders import parsed_job, template, training_job, variables_of

GIB = 1 << 30
ROOT = Path(__file__).resolve().parents[3]
LOCAL = [
    file
    for file in sorted((ROOT / "examples" / "manifests").glob("*.yaml"))
    if "kind: TrainingJob" in file.read_text(encoding="utf-8")
]


def container_of(manifest: dict[str, Any], context: ParseContext | None = None) -> dict[str, Any]:
    replica = ReplicaAssignment("worker", 0, "a")
    made = pod_of(parsed_job(manifest, context), replica, [replica], 1)["spec"]["containers"][0]
    assert isinstance(made, dict)
    return made


@pytest.mark.parametrize("file", LOCAL, ids=lambda file: file.name)
def test_a_manifest_that_runs_on_one_machine_asks_for_the_same_here(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    here = load(text, file.name).jobs[0]
    document = read_documents(text, file.name)[0].value
    assert isinstance(document, dict)
    document["spec"]["image"] = "registry.example/train:1"
    there = parsed_job(document).spec
    for field in ("name", "minimum", "maximum", "request", "priority", "category", "restart", "backoff_limit"):
        assert getattr(there, field) == getattr(here, field), field
    for field in ("grace_seconds", "progress", "ttl_seconds", "deadline_seconds"):
        assert getattr(there, field) == getattr(here, field), field
    ours, theirs = there.worker, here.worker
    assert (ours.command, ours.cpus, ours.memory_bytes) == (theirs.command, theirs.cpus, theirs.memory_bytes)


def test_image_command_and_needs_become_a_container() -> None:
    made = container_of(
        training_job(
            command="python train.py --lr '0.1'",
            resources={"cpu": 0.5, "memory": "2Gi", "gpu": 2},
            env={"LR": 0.1},
            workingDir="/app",
        )
    )
    assert made["image"] == "registry.example/mnist:1"
    assert made["command"] == ["python", "train.py", "--lr", "0.1"]
    assert made["workingDir"] == "/app"
    assert {"name": "LR", "value": "0.1"} in made["env"]
    assert made["resources"] == {
        "requests": {"cpu": "500m", "memory": str(2 * GIB)},
        "limits": {"memory": str(2 * GIB), "nvidia.com/gpu": 2},
    }


def test_without_a_command_the_image_runs_its_own() -> None:
    manifest = training_job()
    del manifest["spec"]["command"]
    assert "command" not in container_of(manifest)


def test_devices_of_another_make_are_asked_for_where_the_cluster_has_them() -> None:
    made = container_of(training_job(resources={"gpu": 1}), ParseContext(gpu_resource="amd.com/gpu"))
    assert made["resources"]["limits"] == {"amd.com/gpu": 1}


def test_the_cluster_may_have_a_default_image() -> None:
    made = container_of(training_job(image=""), ParseContext(default_image="registry.example/default:1"))
    assert made["image"] == "registry.example/default:1"


def test_fields_are_laid_over_the_first_container_of_a_template() -> None:
    given = template(
        "mine", cpu="4", env=[{"name": "LR", "value": "1"}, {"name": "KEPT", "value": "x"}], args=["--old"]
    )
    given["spec"]["containers"].append({"name": "proxy", "image": "registry.example/proxy:1"})
    manifest = training_job(image="", env={"LR": "2"}, template=given)
    job = parsed_job(manifest)
    pod = pod_of(job, ReplicaAssignment("worker", 0, "a"), [ReplicaAssignment("worker", 0, "a")], 1)
    first, second = pod["spec"]["containers"]
    assert (first["name"], first["image"]) == ("mine", "registry.example/train:1")
    assert first["command"] == ["python", "train.py"]
    assert "args" not in first
    assert first["resources"] == {"limits": {"cpu": "4"}}
    variables = variables_of(pod)
    assert (variables["LR"], variables["KEPT"]) == ("2", "x")
    assert second["name"] == "proxy"
    assert job.shape.cpus == 4000


def test_the_time_to_save_is_the_pod_s_grace() -> None:
    replica = ReplicaAssignment("worker", 0, "a")
    values = [
        pod_of(parsed_job(manifest), replica, [replica], 1)["spec"]["terminationGracePeriodSeconds"]
        for manifest in (
            training_job(grace="1.5s"),
            training_job(grace="2m", template=template("x", pod={"terminationGracePeriodSeconds": 7})),
            training_job(template=template("x", pod={"terminationGracePeriodSeconds": 7})),
            training_job(),
        )
    ]
    assert values == [2, 120, 7, 30]


def test_every_start_is_ours_so_the_kubelet_restarts_nothing() -> None:
    job = parsed_job(training_job(restartPolicy="OnFailure"))
    replica = ReplicaAssignment("worker", 0, "a")
    assert job.spec.restart is RestartPolicy.ON_FAILURE
    assert pod_of(job, replica, [replica], 1)["spec"]["restartPolicy"] == "Never"


def test_parameter_servers_stay_beside_the_workers() -> None:
    servers = {"count": 2, "command": ["python", "ps.py"], "resources": {"cpu": 2}, "env": {"ROLE": "ps"}}
    job = parsed_job(training_job(workers="1:4", parameterServers=servers, env={"LR": "1"}))
    assert (job.shape.ps, job.shape.ps_cpus) == (2, 2000)
    gang = [ReplicaAssignment("ps", 0, "a"), ReplicaAssignment("ps", 1, "a"), ReplicaAssignment("worker", 0, "a")]
    pod = pod_of(job, gang[1], gang, 1)
    assert pod["metadata"]["name"] == "mnist-ps-1"
    assert pod["spec"]["containers"][0]["command"] == ["python", "ps.py"]
    variables = variables_of(pod)
    assert (variables["ROLE"], variables["LR"], variables["STERNA_SIZE"]) == ("ps", "1", "1")


def test_workers_of_one_job_find_each_other() -> None:
    job = parsed_job(training_job(workers=2))
    gang = [ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 1, "b")]
    variables = variables_of(pod_of(job, gang[1], gang, 1))
    assert (variables["MASTER_ADDR"], variables["RANK"]) == ("mnist-worker-0.default.svc", "1")
    alone = parsed_job(training_job())
    assert "MASTER_ADDR" not in variables_of(pod_of(alone, gang[0], gang[:1], 1))


def test_torchrun_s_agents_meet_as_those_of_a_pytorch_job_do() -> None:
    job = parsed_job(training_job(workers="1:4", resizing="torchrun"))
    replica = ReplicaAssignment("worker", 0, "a")
    assert variables_of(pod_of(job, replica, [replica], 1))["PET_NNODES"] == "1:4"


def test_in_place_resizing_falls_back_to_restart_with_a_notice() -> None:
    job = parsed_job(training_job(workers="1:4", resizing="in-place"))
    assert job.spec.resizing is Resizing.RESTART
    assert "resized by checkpoint and restart" in job.spec.notices[0]


@pytest.mark.parametrize(("replicas", "asked"), [(0, 2), (3, 3), (9, 4), (1, 2)])
def test_what_kubectl_scale_writes_is_the_number_asked_for(replicas: int, asked: int) -> None:
    job = parsed_job(training_job(workers={"min": 2, "max": 4, "request": 2}, replicas=replicas, resizing="restart"))
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (2, asked, 4)


def test_a_part_of_a_gpu_needs_kubeshare() -> None:
    job = parsed_job(training_job(resources={"gpu": 0.5}))
    assert job.ownership is PodOwnership.KUBESHARE
    assert job.shape.devices == 500
    assert parsed_job(training_job(resources={"gpu": 1})).ownership is PodOwnership.OPERATOR


def test_life_cycle_fields_are_understood() -> None:
    job = parsed_job(
        training_job(ttl="1h", deadline=90, backoffLimit=2, cleanPodPolicy="All", suspend=True, priority=4)
    )
    assert (job.spec.ttl_seconds, job.spec.deadline_seconds, job.spec.backoff_limit) == (3600, 90, 2)
    assert job.clean_pods is CleanPods.ALL
    assert job.is_suspended
    assert job.spec.priority == 4


def test_selector_tolerations_and_affinity_determine_the_allowed_nodes() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = {
        "nodeSelector": {"b": "2", "a": "1"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": required,
    }
    first, second = (parsed_job(training_job(name, template=template("x", pod=pod))) for name in ("one", "two"))
    assert first.needs.selector == (("a", "1"), ("b", "2"))
    assert first.shape.selector == first.needs.selector
    assert first.needs.tolerations[0].operator == "Exists"
    assert b'"nodeSelectorTerms"' in first.needs.required
    assert hash(first.needs) == hash(second.needs)
    assert first.needs == second.needs


def test_jobs_of_one_specification_differ_in_what_is_their_own() -> None:
    first, second = training_job(), training_job()
    second["metadata"] |= {"name": "other", "uid": "uid-2", "namespace": "team", "generation": 4}
    one, other = parsed_job(first), parsed_job(second)
    assert (other.ref.name, other.ref.uid, other.ref.namespace, other.generation) == ("other", "uid-2", "team", 4)
    assert other.spec.name == "other"
    assert one.ref.name == one.spec.name == first["metadata"]["name"]
    assert other.templates == one.templates
    second["metadata"]["annotations"] = {"sterna.dev/priority": "7"}
    assert parsed_job(second).spec.priority == 7
    second["metadata"]["name"] = "x" * 63
    with pytest.raises(UserError, match="has 63 letters"):
        parsed_job(second)


@pytest.mark.parametrize(
    ("spec", "resizing"),
    [
        ({}, Resizing.NONE),
        ({"resizing": "restart"}, Resizing.RESTART),
        ({"parameterServers": {"command": ["python", "ps.py"]}}, Resizing.RESTART),
        ({"command": ["torchrun", "train.py"]}, Resizing.TORCHRUN),
        ({"command": "/opt/bin/torchrun --max-restarts 3 train.py"}, Resizing.TORCHRUN),
        ({"command": ["python", "-m", "torch.distributed.run", "train.py"]}, Resizing.TORCHRUN),
        ({"command": ["torchrun", "--standalone", "train.py"]}, Resizing.NONE),
        ({"command": ["torchrun", "--nnodes=1", "train.py"]}, Resizing.NONE),
        ({"command": ["torchrun", "train.py"], "resizing": "none"}, Resizing.NONE),
    ],
)
def test_a_job_resizes_only_if_it_can(spec: dict[str, Any], resizing: Resizing) -> None:
    job = parsed_job(training_job(workers={"min": 1, "max": 4, "request": 2}, **spec)).spec
    assert job.resizing is resizing
    is_fixed = resizing is Resizing.NONE
    assert (job.minimum, job.maximum, job.request) == ((2, 2, 2) if is_fixed else (1, 4, 2))
    assert any(notice.startswith("It runs with 2 workers, not with 1 to 4") for notice in job.notices) is is_fixed


def test_job_of_fixed_size_has_no_notice_about_resizing() -> None:
    job = parsed_job(training_job(workers=4)).spec
    assert (job.minimum, job.maximum, job.notices) == (4, 4, ())


def test_checkpoint_is_a_field_or_an_annotation() -> None:
    annotated = {"sterna.dev/checkpoint": "/data/b"}
    assert parsed_job(training_job(checkpoint="/data/a")).spec.checkpoint == "/data/a"
    assert parsed_job(training_job(), annotations=annotated).spec.checkpoint == "/data/b"
    assert parsed_job(training_job(checkpoint="/data/a"), annotations=annotated).spec.checkpoint == "/data/a"
