"""Objects that cannot run are rejected in one sentence; no object raises anything else."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.move_record import move_record
from sterna.backends.kubernetes.pods.pod_builder import pod_of, service_of, share_pod_of
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.pods.share_rows import share_row
from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.mpi_v1 import convert_v1
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parse import invalid_reason, is_managed, parse_job
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.unit.kinds.kind_builders import (
    group,
    mpi_job,
    parsed_job,
    pytorch_job,
    template,
    tf_job,
    training_job,
)

Object = dict[str, Any]


def without(manifest: Object, *path: str) -> Object:
    inner: Any = manifest
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return manifest


def with_template(value: object) -> Object:
    return tf_job({"PS": group(), "Worker": {"replicas": 2, "template": value}})


WORKER = "spec.tfReplicaSpecs.Worker"
PODS_OF = "spec.template.spec.containers"
SELECT = {"nodeSelector": {"pool": "gpu"}}

REFUSED = [
    (tf_job(low=5, high=4), "min-instances 5 is more than max-instances 4; make it at most as large."),
    (tf_job(low=0, high=4), "spec.min-instances: expected at least 1, found '0'."),
    (tf_job(low=1, high=None), "spec.max-instances is missing; give both bounds or neither."),
    (tf_job({"Worker": group(2)}), "spec.tfReplicaSpecs.PS is missing; a TFJob that grows and shrinks has PS and"),
    (tf_job({"PS": group(), "Worker": group(0)}), f"{WORKER} is missing"),
    (tf_job({}), "spec.tfReplicaSpecs asks for no replicas at all; add Worker with at least one."),
    (without(tf_job(), "spec", "tfReplicaSpecs"), "spec.tfReplicaSpecs asks for no replicas at all"),
    (
        tf_job({"PS": group(), "Wrker": group()}),
        "has no replica type 'Wrker'; did you mean 'worker'?",
    ),
    (tf_job({"PS": group(), "ps": group()}), "spec.tfReplicaSpecs.ps comes twice"),
    (tf_job({"PS": group(), "Worker": group(), "Chief": group(2)}), "spec.tfReplicaSpecs.Chief.replicas is 2; there"),
    (tf_job({"PS": group(), "Worker": group(name="tf")}), f"{WORKER} has no container named 'tensorflow'"),
    (tf_job({"PS": group(), "Worker": group(image="")}), f"{WORKER}.template: the container 'tensorflow' has no image"),
    (with_template({"spec": {"containers": []}}), f"{WORKER}.template.spec has no containers; add one"),
    (with_template({}), f"{WORKER}.template.spec has no containers"),
    (with_template("x"), f"{WORKER}.template: expected a mapping of names to values, found 'x'."),
    (
        with_template({"spec": {"containers": [{"name": 3}]}}),
        ".template.spec.containers[0].name: expected text",
    ),
    (
        tf_job({"PS": group(), "Worker": group(cpu="4 cores")}),
        "'4 cores' is no quantity such as 2, 500m or 8Gi;",
    ),
    (
        tf_job({"PS": group(), "Worker": group(restart="Maybe")}),
        f"{WORKER}.restartPolicy is 'Maybe'; write one of",
    ),
    (tf_job({"PS": group(), "Worker": group(-1)}), f"{WORKER}.replicas is -1; write a number from 1"),
    (
        tf_job({"PS": group(), "Worker": {**group(), "replicas": "two"}}),
        f"{WORKER}.replicas: expected a whole number, found 'two'.",
    ),
    (tf_job(cleanPodPolicy="Some"), "cleanPodPolicy is 'Some'; write one of All, Running, None."),
    (tf_job(backoffLimit=-1), "backoffLimit is -1; write a number from 0"),
    (tf_job(successPolicy="Most"), "spec.successPolicy is 'Most'; write AllWorkers, or leave it out"),
    (tf_job(activeDeadlineSeconds=0), "activeDeadlineSeconds is 0; write a number of seconds of at least 1."),
    (
        tf_job(annotations={"sterna.dev/priority": "high"}),
        "The annotation sterna.dev/priority is 'high'; write",
    ),
    (
        tf_job(annotations={"sterna.dev/stdout": "loss"}),
        "The annotation sterna.dev/stdout is 'loss'; write a regular expression with named groups",
    ),
    (tf_job(name="a" * 60), "The name 'aaaa"),
    (tf_job(name="my.job"), "'my.job' cannot be the name of a job whose pods call each other by name"),
    (
        tf_job({"PS": group(pod={"nodeSelector": {"pool": "cpu"}}), "Worker": group(pod=SELECT)}),
        f"{WORKER} and spec.tfReplicaSpecs.PS want nodes with another pool",
    ),
    (
        tf_job({"PS": group(gpus=1), "Chief": group(gpus=1), "Worker": group(2, gpus=1)}),
        "in a job that grows and shrinks only workers and one Master or Chief may",
    ),
    (
        tf_job(
            {"PS": group(), "Worker": group(annotations={"kubeshare/gpu_request": "2"})},
            annotations={"DRAGON_KUBESHARE": "true"},
        ),
        "The annotation kubeshare/gpu_request is '2'; write a share of one GPU from 0 to 1.",
    ),
    (pytorch_job({"Worker": group(name="torch")}), "has no container named 'pytorch'"),
    (
        pytorch_job({"Worker": group(name="pytorch")}, {"minReplicas": 5, "maxReplicas": 3}),
        "minReplicas 5 is more than maxReplicas 3; make it at most as large.",
    ),
    (pytorch_job({"Master": group(name="pytorch")}, {"minReplicas": 1}), "spec.pytorchReplicaSpecs.Worker is missing"),
    (pytorch_job({"Master": group(2, name="pytorch")}), "spec.pytorchReplicaSpecs.Master.replicas is 2; there can be"),
    (mpi_job({"MIN_NP": "9", "MAX_NP": "4"}), "The launcher's MIN_NP 9 is more than its MAX_NP 4; make it smaller."),
    (mpi_job({"NP": "9", "MIN_NP": "1", "MAX_NP": "4"}), "The launcher's NP 9 is not between its MIN_NP and MAX_NP"),
    (
        training_job(image=""),
        "spec.image is missing; name the image that holds the training script, or give",
    ),
    (training_job(comand=["x"]), "spec has no field 'comand'; did you mean 'command'?"),
    (training_job(workers="4:1"), "spec.workers: min 4 is more than max 1; make it at most as large."),
    (training_job(workers=0), "spec.workers.min: expected at least 1, found '0'."),
    (training_job(resources={"cpu": "lots"}), "spec.resources.cpu: expected a number such as 2, 0.5 or 500m, found"),
    (training_job(resources={"gpu": 1.5}), "spec.resources.gpu is 1.5; ask for whole devices, or for a part of one"),
    (
        training_job(template={"spec": {"containers": [{"resources": 5}]}}),
        f"{PODS_OF}[0].resources: expected a",
    ),
    (
        training_job(template=template("x", cpu="y")),
        "the resources of container 'x': 'y' is no quantity",
    ),
    (training_job(parameterServers={"count": 0}), "spec.parameterServers.count: expected at least 1, found '0'."),
]


@pytest.mark.parametrize(
    ("manifest", "sentence"), REFUSED, ids=[f"{each['kind']}: {text[:60]}" for each, text in REFUSED]
)
def test_what_cannot_be_run_is_refused_in_one_sentence(manifest: Object, sentence: str) -> None:
    """DRAGON-2."""
    with pytest.raises(UserError) as caught:
        parsed_job(manifest)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_the_longest_name_that_fits_is_taken() -> None:
    assert parsed_job(tf_job(name="a" * 54, high=9)).ref.name == "a" * 54
    with pytest.raises(UserError, match="use at most 53"):
        parsed_job(tf_job(name="a" * 54, high=100))


def test_fields_that_stand_empty_count_as_absent() -> None:
    """As in Kubernetes; `creationTimestamp: null` is in every template that a Go program wrote."""
    given_template = template("x", pod={"nodeSelector": None, "tolerations": None, "affinity": None})
    given_template["metadata"] = {"creationTimestamp": None, "labels": None}
    assert parsed_job(training_job(template=given_template)).needs.selector == ()


@pytest.mark.parametrize(
    ("resource", "word"), [(TF_JOBS, "InvalidTFJobSpec"), (TRAINING_JOBS, "Invalid"), (PODS, "Invalid")]
)
def test_condition_reasons_are_those_of_the_kind(resource: Resource, word: str) -> None:
    assert invalid_reason(resource) == word


# Garbage.

KNOWN = """
    spec template containers name image resources limits requests cpu memory env metadata annotations labels replicas
    restartPolicy nodeSelector tolerations affinity tfReplicaSpecs pytorchReplicaSpecs mpiReplicaSpecs PS Worker worker
    Launcher Master max-instances min-instances elasticPolicy minReplicas maxReplicas runPolicy suspend command workers
    progress grace min max parameterServers volumes nvidia.com/gpu terminationGracePeriodSeconds initContainers overhead
    value ports containerPort slotsPerWorker kubeshare/gpu_request sterna.dev/min-workers DRAGON_KUBESHARE nodeAffinity
    status data
"""
WORDS = st.sampled_from(KNOWN.split())
TEXTS = ["", "1", "-1", "4:1", "500m", "8Gi", "1e999", "true", "tensorflow", "pytorch", "sterna", "\x00"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(TEXTS)
    | st.text(max_size=5)
)
GARBAGE = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=6
)
KINDS = {
    TF_JOBS: tf_job(),
    PYTORCH_JOBS: pytorch_job({"Worker": group(2, name="pytorch")}, {"minReplicas": 1, "maxReplicas": 3}),
    MPI_JOBS: mpi_job({"NP": "2"}),
    TRAINING_JOBS: training_job(workers="1:4", template=template("x")),
    SHARE_PODS: training_job(),
}


def paths_in(value: object, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a manifest."""
    found = [above]
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths_in(inner, (*above, key))
    return found


def replace_at(value: Any, path: tuple[Any, ...], by: object) -> Any:
    if not path:
        return by
    if isinstance(value, dict):
        return {key: replace_at(inner, path[1:], by) if key == path[0] else inner for key, inner in value.items()}
    return [replace_at(inner, path[1:], by) if key == path[0] else inner for key, inner in enumerate(value)]


@st.composite
def invalid_objects(draw: st.DrawFn) -> tuple[Resource, Object, Object]:
    """A resource, a specification in which some places hold garbage, and annotations."""
    resource = draw(st.sampled_from(list(KINDS)))
    spec: Any = KINDS[resource]["spec"]
    for _ in range(draw(st.integers(1, 3))):
        spec = replace_at(spec, draw(st.sampled_from(paths_in(spec))), draw(GARBAGE))
    annotations = draw(st.dictionaries(WORDS | st.just("sterna.dev/max-workers"), st.text(max_size=4), max_size=3))
    return resource, spec, annotations


def build_all(job: ParsedJob) -> None:
    """Everything that is made of what was read."""
    gang = [ReplicaAssignment(each.type, 0, "a") for each in job.spec.replicas]
    for replica in gang:
        made = share_pod_of if job.ownership is PodOwnership.KUBESHARE else pod_of
        msgspec.json.encode(made(job, replica, gang, 1))
        msgspec.json.encode(service_of(job, replica.type, replica.ordinal))


GARBLED: list[object] = [
    None,
    True,
    -1,
    2**70,
    0.5,
    "",
    "x",
    [],
    [None],
    [1],
    ["x"],
    [{}],
    {},
    {"name": 1},
    {"x": None},
]


def assert_parsed_or_rejected(resource: Resource, spec: object, annotations: Object) -> None:
    """Whatever becomes of it, nothing but a sentence is raised."""
    data = msgspec.json.encode({"metadata": {"name": "a", "annotations": annotations}, "spec": spec})
    job = msgspec.json.decode(data, type=JobObject)
    if resource is SHARE_PODS:
        share_row(job)
        return
    is_managed(job, resource)
    with contextlib.suppress(UserError):
        found = parse_job(job, resource, ParseContext(default_image="x"))
        if found.ownership is not PodOwnership.MPI_OPERATOR:
            build_all(found)


@pytest.mark.parametrize("resource", KINDS, ids=lambda resource: resource.kind)
def test_garbage_at_any_one_place_is_refused_or_harmless(resource: Resource) -> None:
    spec = KINDS[resource]["spec"]
    for path in paths_in(spec):
        for garbage in GARBLED:
            assert_parsed_or_rejected(resource, replace_at(spec, path, garbage), {})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(invalid_objects())
@example((TRAINING_JOBS, {"image": "a", "env": {"\ud800": "x"}}, {}))
@example((TF_JOBS, {"tfReplicaSpecs": {"Worker": None}}, {}))
@example((MPI_JOBS, [], {}))
def test_no_object_raises_anything_but_its_sentence(drawn: tuple[Resource, Object, Object]) -> None:
    resource, spec, annotations = drawn
    with contextlib.suppress(UnicodeEncodeError):  # no server sends such a text
        assert_parsed_or_rejected(resource, spec, annotations)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(WORDS, GARBAGE, max_size=4))
def test_no_manifest_raises_anything_but_its_sentence_when_it_is_translated_or_moved(garbage: Object) -> None:
    with contextlib.suppress(UserError):
        convert_v1({"metadata": garbage, "spec": garbage, **garbage})
    with contextlib.suppress(UserError):
        move_record({"metadata": {"name": "p"}, "spec": garbage, **garbage}, "b", 1)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(WORDS, GARBAGE, max_size=4), st.dictionaries(WORDS, st.text(max_size=4), max_size=3))
def test_no_pod_that_can_be_decoded_is_without_a_row(garbage: Object, texts: dict[str, str]) -> None:
    document = {
        "metadata": {"name": "p", "labels": {**texts, "sterna.dev/job": "p"}, "annotations": texts},
        "spec": garbage,
        "status": garbage,
    }
    try:
        pod = msgspec.convert(document, Pod)
    except msgspec.ValidationError:
        return
    pod_row(pod)
    with contextlib.suppress(UserError):
        parse_job(pod, PODS)
