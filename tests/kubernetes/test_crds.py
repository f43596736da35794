"""The definitions on a real server: what they take, what they refuse and in which words, and that pods made of what
they took are taken too."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.pod_builder import pod_of, service_of
from sterna.kinds.objects import JobObject
from sterna.kinds.parse import parse_job
from sterna.kinds.parsing.documents import read_documents
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.kubernetes.api import Api, Object, Refused, until
from tests.kubernetes.control_plane import ControlPlane
from tests.published import MANIFESTS
from tests.unit.kinds.kind_builders import group, template, tf_job, training_job

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "deploy" / "crds"
RESOURCES = {each.kind: each for each in (TF_JOBS, TRAINING_JOBS)}
TEN_LINES = """\
apiVersion: sterna.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist}
spec:
  image: registry.example/mnist:1
  command: [python, train.py, --lr, 0.1]
  workers: "1:4"
  resources: {cpu: 0.5, memory: 2Gi}
  progress: {stdout: 'step (?P<step>\\d+)/(?P<total>\\d+) loss (?P<loss>\\S+)'}
  grace: 30s
"""


def path_of(kind: str) -> str:
    return RESOURCES[kind].path("default")


def dry_run(api: Api, document: Object) -> Object:
    """Return the object as it would be stored (dry run)."""
    answer = api.ask("POST", f"{path_of(document['kind'])}?dryRun=All&fieldValidation=Strict", document)
    assert isinstance(answer, dict)
    return answer


def is_refused(api: Api, document: Object) -> bool:
    try:
        dry_run(api, document)
    except Refused as error:
        return error.status == 422
    return False


@pytest.fixture(scope="module")
def defined(plane: ControlPlane) -> Iterator[Api]:
    """A policy is in force some time after it was installed."""
    with plane.api() as api:
        for file in sorted(CRDS.rglob("*.yaml")):
            api.apply_all(file.read_text(encoding="utf-8"))
        for resource in RESOURCES.values():
            until(functools.partial(api.find, resource.path("default")), what=f"that {resource.plural} are served")
        until(functools.partial(is_refused, api, training_job(workers="4:1")), what="that the policy is in force")
        yield api


def container(**fields: Any) -> Object:
    return {"name": "tensorflow", "image": "registry.example/train:1", **fields}


def with_containers(*containers: Object) -> Object:
    return tf_job({"PS": group(), "Worker": {"template": {"spec": {"containers": list(containers)}}}})


LIMITS: dict[str, Any] = {"resources": {"limits": {"cpu": "4 cores"}}}
TYPO: dict[str, Any] = {"max-instance": 4}
PREFERRING: dict[str, Any] = {"node-preference": "node-1"}
ELASTIC = "a TFJob that grows and shrinks has both PS and Worker"
NAME = "the name must have at most 50 small letters"

REFUSED = [
    (tf_job(low=5, high=4), "min-instances must not be more than max-instances"),
    (tf_job(low=0, high=4), "spec.min-instances in body should be greater than or equal to 1"),
    (tf_job(low=None, high=4), "give both max-instances and min-instances, or neither"),
    (tf_job({"Worker": group(2)}), ELASTIC),
    (tf_job({"PS": group()}), ELASTIC),
    (tf_job({"PS": group(), "Worker": group(0)}), "Worker.replicas in body should be greater than or equal to 1"),
    (tf_job({"PS": group(), "Wroker": group()}, None, None), "replica types are PS, Worker, Chief, Master"),
    (tf_job({"PS": group(), "Worker": group(), "chief": group(2)}), "there can be only one Chief, Master or Evaluator"),
    (tf_job({}, None, None), "spec.tfReplicaSpecs in body should have at least 1 properties"),
    (with_containers(), "containers in body should have at least 1 items"),
    (with_containers(container(name="tf")), "one container must be named 'tensorflow'"),
    (with_containers(container(image="")), "image in body should be at least 1 chars long"),
    (with_containers(container(**LIMITS)), "limits.cpu in body should match"),
    (tf_job({"PS": group(), "Worker": group(restart="Maybe")}), 'supported values: "Always", "OnFailure", "Never"'),
    (tf_job(cleanPodPolicy="Some"), 'supported values: "All", "Running", "None"'),
    (tf_job(name="a" * 51), NAME),
    (tf_job(name="1-digits"), NAME),
    (tf_job(**TYPO), 'unknown field "spec.max-instance"'),
    (training_job(workers="4:1"), "min must not be more than max"),
    (training_job(workers=0), "spec.workers must be at least 1"),
    (training_job(workers={"min": 2, "max": 4, "request": 9}), "spec.workers.request must be between min and max"),
    (training_job(workers={"mim": 2}), "spec.workers must be a number of workers, or the fewest and the most"),
    (training_job(workers="many"), "spec.workers must be a number of workers, or the fewest and the most"),
    (training_job(resources={"cpu": "lots"}), "resources must be amounts: cpu and gpu such as 2, 0.5 or 500m"),
    (training_job(resources={"memory": "3Zi"}), "resources must be amounts"),
    (training_job(parameterServers={"command": ["ps"], "resources": {"cpu": "x"}}), "resources must be amounts"),
    (training_job(parameterServers={"count": 0}), "count in body should be greater than or equal to 1"),
    (training_job(grace="5 parsecs"), "write seconds, or a time such as 30s, 5m or 2h"),
    (training_job(ttl=-1), "write seconds, or a time such as 30s, 5m or 2h"),
    (training_job(restartPolicy="Sometimes"), 'supported values: "Never", "OnFailure", "ExitCode"'),
    (training_job(progress={"goal": "up"}), 'supported values: "", "min", "max"'),
    (training_job(template={"spec": {"containers": []}}), "containers in body should have at least 1 items"),
    (training_job(template=template("x", **LIMITS)), "limits.cpu in body should match"),
    (training_job(comand=["python"]), 'unknown field "spec.comand"'),
    (training_job(name="my.job"), NAME),
]


@pytest.mark.parametrize(
    ("document", "sentence"), REFUSED, ids=[f"{each['kind']}: {text[:60]}" for each, text in REFUSED]
)
def test_invalid_job_is_rejected_on_submission(defined: Api, document: Object, sentence: str) -> None:
    """DRAGON-2."""
    with pytest.raises(Refused) as caught:
        dry_run(defined, document)
    assert sentence in caught.value.message
    assert caught.value.status in (400, 422)


SHAPED = training_job(
    workers={"min": 1, "max": 3, "request": 2},
    env=[{"name": "LR", "value": "0.1"}],
    resources={"cpu": "500m", "memory": 1 << 30, "gpu": 1},
    ttl="1d",
    deadline=90,
    resizing="torchrun",
    template=template("x", pod={"volumes": [{"name": "data", "emptyDir": {}}]}),
    parameterServers={"count": 2, "command": "python ps.py"},
)
TAKEN = [
    yaml.safe_load(TEN_LINES),
    training_job(command="python train.py", workers=4, env={"LR": 0.1}),
    SHAPED,
    training_job(name="a" * 50, workers=100_000),
    tf_job(),
    tf_job({"ps": group(None), "WORKER": group(None)}, None, None, name="b" * 50),
    tf_job({"PS": group(2), "Chief": group(gpus=1), "Worker": group(2, gpus=1), "Evaluator": group()}),
    tf_job(annotations={"sterna.dev/preemptible": "true"}, **PREFERRING),
]


def old_manifests() -> list[Object]:
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(MANIFESTS.glob("edragon-tfjob-*"))]


def own_examples() -> list[Object]:
    files = [*(ROOT / "examples" / "kubernetes").glob("*.yaml"), *(ROOT / "examples" / "manifests").glob("*.yaml")]
    found = [
        each.value for file in sorted(files) for each in read_documents(file.read_text(encoding="utf-8"), file.name)
    ]
    return [each for each in found if isinstance(each, dict) and each["kind"] in RESOURCES]


@pytest.mark.parametrize(
    "document",
    [*TAKEN, *old_manifests(), *own_examples()],
    ids=lambda each: f"{each['kind']} {each['metadata']['name']}",
)
def test_valid_jobs_and_their_pods_are_accepted(defined: Api, document: Object) -> None:
    """DRAGON-1, DRAGON-4: also the names of the last pods of a job with the longest name."""
    document = copy.deepcopy(document)
    if document["kind"] == "TrainingJob":
        document["spec"].setdefault("image", "registry.example/train:1")
    stored = dry_run(defined, document)
    stored["metadata"].setdefault("uid", "00000000-0000-0000-0000-000000000000")
    decoded = msgspec.json.decode(msgspec.json.encode(stored), type=JobObject)
    job = parse_job(decoded, RESOURCES[document["kind"]])
    worker = job.spec.worker
    gang = [ReplicaAssignment(each.type, 0, "node-1") for each in job.spec.replicas if each is not worker]
    gang += [ReplicaAssignment(worker.type, index, "node-1") for index in sorted({0, job.spec.maximum - 1})]
    for replica in gang:
        for made, plural in (
            (pod_of(job, replica, gang, 1), "pods"),
            (service_of(job, replica.type, replica.ordinal), "services"),
        ):
            answer = defined.ask("POST", f"/api/v1/namespaces/default/{plural}?dryRun=All&fieldValidation=Strict", made)
            assert answer["metadata"]["name"] == made["metadata"]["name"]


def test_defaults_are_filled_in(defined: Api) -> None:
    """DRAGON-3."""
    spec = dry_run(defined, tf_job({"PS": group(None), "Worker": group(None)}))["spec"]
    worker = spec["tfReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"], spec["cleanPodPolicy"]) == (1, "Never", "Running")
    spec = dry_run(defined, training_job())["spec"]
    assert (spec["restartPolicy"], spec["backoffLimit"], "resizing" in spec) == ("OnFailure", 6, False)


def test_a_job_is_scaled_as_anything_else_is(defined: Api) -> None:
    defined.create(training_job("scaled", workers="1:4", resizing="restart"))
    path = f"{path_of('TrainingJob')}/scaled"
    defined.patch(f"{path}/scale", {"spec": {"replicas": 3}})
    stored = msgspec.json.decode(msgspec.json.encode(defined.get(path)), type=JobObject)
    assert parse_job(stored, TRAINING_JOBS).spec.request == 3
    defined.patch(f"{path}/status", {"status": {"workers": 2}})
    assert defined.get(f"{path}/scale")["status"]["replicas"] == 2
    defined.delete(path)


@pytest.mark.parametrize("document", [training_job("shown"), tf_job(name="shown")], ids=lambda each: each["kind"])
def test_a_status_is_kept_whole_and_shown_in_columns(defined: Api, plane: ControlPlane, document: Object) -> None:
    defined.create(document)
    path = f"{path_of(document['kind'])}/shown"
    status = {
        "phase": "Running",
        "workers": 3,
        "nodes": ["node-1"],
        "reason": "runs with 3 workers.",
        "progress": {"percent": 42.5, "eta": "3h20m", "step": 17},
        "sterna": {"attempt": 2, "moving": {"a": "b"}, "enqueuedAt": 1.5},
        "enqueueTime": "2024-05-01T12:00:00Z",
        "conditions": [{"type": "Running", "status": "True", "reason": "x", "message": "y"}],
        "replicaStatuses": {"Worker": {"active": 3}},
    }
    assert defined.patch(f"{path}/status", {"status": status})["status"] == status
    shown = plane.kubectl("get", RESOURCES[document["kind"]].plural, "shown")
    head, row = (line.split() for line in shown.splitlines())
    assert head == ["NAME", "PHASE", "WORKERS", "PROGRESS", "ETA", "AGE"]
    assert row[:5] == ["shown", "Running", "3", "42.5", "3h20m"]
    waiting = defined.items(f"{path_of(document['kind'])}?fieldSelector=status.phase%3DWaiting")
    assert "shown" not in [each["metadata"]["name"] for each in waiting]
    defined.delete(path)


def test_an_object_from_before_the_policy_can_still_lose_its_finalizers(plane: ControlPlane, defined: Api) -> None:
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/trainingjobs.sterna.dev"
    bad = training_job("old", workers="4:1")
    bad["metadata"]["finalizers"] = ["example.com/kept"]
    binding = defined.get(policy)
    defined.delete(policy)
    until(lambda: not is_refused(defined, bad), what="that the policy is gone")
    defined.create(bad)
    binding["metadata"] = {"name": binding["metadata"]["name"]}
    defined.create(binding)
    until(functools.partial(is_refused, defined, training_job(workers="4:1")), what="that the policy is in force")
    path = f"{path_of('TrainingJob')}/old"
    defined.delete(path)
    defined.patch(path, {"metadata": {"finalizers": None}})
    assert defined.find(path) is None
