"""CRD files: they agree with the parsers, and an API server accepts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.parse import is_managed, parse_job
from sterna.kinds.parsing.annotations import MOST_WORKERS
from sterna.kinds.parsing.documents import read_documents
from sterna.kinds.parsing.fields import Fields
from sterna.kinds.parsing.job_builder import MAX_NAME_LENGTH
from sterna.kinds.pod import is_serving
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS, ParameterServers, ReplicaNeeds, TrainingJobSpec
from sterna.progress.spec import progress_fields
from tests.unit.kinds.kind_builders import job_object, pod_object

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "deploy" / "crds"
DEFINED = {"trainingjobs": TRAINING_JOBS, "tfjobs": TF_JOBS}
EXAMPLES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
RESOURCES = {each.kind: each for each in (TRAINING_JOBS, TF_JOBS, PYTORCH_JOBS, MPI_JOBS)}


def version_of(name: str) -> dict[str, Any]:
    definition = yaml.safe_load((CRDS / f"{name}.yaml").read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    assert isinstance(version, dict)
    return version


def schema_of(name: str) -> dict[str, Any]:
    schema = version_of(name)["schema"]["openAPIV3Schema"]
    assert isinstance(schema, dict)
    return schema


def names_of(model: type[Fields]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(model)}


@pytest.mark.parametrize("name", DEFINED)
def test_a_definition_is_of_the_resource_that_is_followed(name: str) -> None:
    definition = yaml.safe_load((CRDS / f"{name}.yaml").read_text(encoding="utf-8"))
    resource, spec = DEFINED[name], definition["spec"]
    assert definition["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    assert (spec["group"], spec["names"]["kind"], spec["scope"]) == (resource.group, resource.kind, "Namespaced")
    assert spec["versions"][0]["name"] == resource.version
    assert set(spec["versions"][0]["subresources"]) == {"status", "scale"}


def test_a_training_job_may_have_every_field_that_is_read_and_no_other() -> None:
    spec = schema_of("trainingjobs")["properties"]["spec"]["properties"]
    assert set(spec) == names_of(TrainingJobSpec)
    assert set(spec["resources"]["properties"]) == names_of(ReplicaNeeds)
    assert set(spec["progress"]["properties"]) == set(progress_fields())
    assert set(spec["parameterServers"]["properties"]) == names_of(ParameterServers)


@pytest.mark.parametrize("name", DEFINED)
def test_the_columns_show_phase_workers_progress_and_when_it_is_done(name: str) -> None:
    columns = [each["name"] for each in version_of(name)["additionalPrinterColumns"] if not each.get("priority")]
    assert columns == ["Phase", "Workers", "Progress", "ETA", "Age"]


@pytest.mark.parametrize("name", DEFINED)
def test_the_longest_name_leaves_room_for_those_of_pods(name: str) -> None:
    (rule,) = schema_of(name)["x-kubernetes-validations"]
    longest = int(rule["rule"].partition("size() <= ")[2].split()[0])
    assert longest + len(f"-worker-{MOST_WORKERS - 1}") <= MAX_NAME_LENGTH


def test_both_kinds_have_the_same_status() -> None:
    one, other = (schema_of(name)["properties"]["status"] for name in DEFINED)
    assert one == other
    assert one["properties"]["sterna"]["x-kubernetes-preserve-unknown-fields"] is True


def schemas_in(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema]
    for inner in schema.get("properties", {}).values():
        found += schemas_in(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += schemas_in(schema[key])
    return found


@pytest.mark.parametrize("name", DEFINED)
def test_every_rule_has_a_sentence_that_is_known_beforehand(name: str) -> None:
    """Sentences that are computed are refused by the server for what they might cost."""
    rules = [rule for each in schemas_in(schema_of(name)) for rule in each.get("x-kubernetes-validations", [])]
    assert rules
    assert all(set(rule) == {"rule", "message"} for rule in rules)


@pytest.mark.parametrize("name", DEFINED)
def test_what_is_specified_is_bounded_so_that_rules_stay_cheap(name: str) -> None:
    spec = schemas_in(schema_of(name)["properties"]["spec"])
    lists = [each for each in spec if each.get("type") == "array"]
    assert lists
    assert all("maxItems" in each for each in lists)
    texts = [each for each in spec if each.get("type") == "string" and "enum" not in each]
    unbounded = [each for each in texts if "maxLength" not in each]
    assert unbounded == [{"type": "string"}] * len(unbounded)  # labels and annotations, whose size Kubernetes bounds


def test_the_policy_for_several_forms_is_bound() -> None:
    text = (CRDS / "admission" / "trainingjobs.yaml").read_text(encoding="utf-8")
    policy, binding = yaml.safe_load_all(text)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert all("message" in each for each in policy["spec"]["validations"])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_is_read_as_a_job_or_as_a_serving_pod(file: Path) -> None:
    (document,) = read_documents(file.read_text(encoding="utf-8"), file.name)
    manifest = document.value
    assert isinstance(manifest, dict)
    if manifest["kind"] == "Pod":
        pod = pod_object(manifest)
        assert is_serving(pod) or parse_job(pod, PODS).spec.maximum == 1
        return
    resource, job = RESOURCES[manifest["kind"]], job_object(manifest)
    assert is_managed(job, resource)
    assert parse_job(job, resource).spec.maximum >= 1
