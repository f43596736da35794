"""Builders of objects as users submit them and as a server returns them, with defaults for every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from sterna.kinds.context import ParseContext
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parse import parse_job
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import Resource
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.published import MANIFESTS

Object = dict[str, Any]

RESOURCES = {each.kind: each for each in (TF_JOBS, PYTORCH_JOBS, MPI_JOBS, TRAINING_JOBS, SHARE_PODS)}


def old_manifest(name: str) -> Object:
    """Read a manifest in the form that users of an older system have."""
    found = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def as_returned(manifest: Mapping[str, Any], **meta: Any) -> Object:
    """As the server returns what was submitted."""
    added = {
        "namespace": "default",
        "uid": "uid-1",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2024-05-01T12:00:00Z",
    }
    return {**manifest, "metadata": {**added, **manifest.get("metadata", {}), **meta}}


def job_object(manifest: Mapping[str, Any], **meta: Any) -> JobObject:
    return msgspec.json.decode(msgspec.json.encode(as_returned(manifest, **meta)), type=JobObject)


def pod_object(manifest: Mapping[str, Any], **meta: Any) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(as_returned(manifest, **meta)), type=Pod)


def resource_of(manifest: Mapping[str, Any]) -> Resource:
    return RESOURCES[manifest["kind"]]


def parsed_job(manifest: Mapping[str, Any], context: ParseContext | None = None, **meta: Any) -> ParsedJob:
    return parse_job(job_object(manifest, **meta), resource_of(manifest), context or ParseContext())


def template(
    name: str = "tensorflow",
    cpu: str | float = "1",
    memory: str = "",
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
    **container: Any,
) -> Object:
    """A pod template of one container."""
    limits: Object = {"cpu": cpu}
    if memory:
        limits["memory"] = memory
    if gpus:
        limits["nvidia.com/gpu"] = gpus
    first = {"name": name, "image": "registry.example/train:1", "resources": {"limits": limits}, **container}
    made: Object = {"spec": {"containers": [first], **(pod or {})}}
    if annotations:
        made["metadata"] = {"annotations": dict(annotations)}
    return made


def group(replicas: int | None = 1, restart: str = "", **more: Any) -> Object:
    """Return replicas of one type; `more` goes into their template."""
    found: Object = {"template": template(**more)}
    if replicas is not None:
        found["replicas"] = replicas
    if restart:
        found["restartPolicy"] = restart
    return found


def tf_job(
    groups: Mapping[str, Any] | None = None,
    low: int | None = 1,
    high: int | None = 4,
    annotations: Mapping[str, str] | None = None,
    name: str = "digits",
    **spec: Any,
) -> Object:
    """Return a TFJob, by default with one parameter server and two workers."""
    replicas = {"PS": group(), "Worker": group(2)} if groups is None else groups
    bounds = {key: value for key, value in (("min-instances", low), ("max-instances", high)) if value is not None}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {**bounds, "tfReplicaSpecs": replicas, **spec},
    }


def pytorch_job(
    groups: Mapping[str, Any], elastic: Mapping[str, Any] | None = None, name: str = "resnet", **spec: Any
) -> Object:
    policy = {"elasticPolicy": dict(elastic)} if elastic is not None else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {**policy, "pytorchReplicaSpecs": dict(groups), **spec},
    }


def training_job(name: str = "mnist", image: str = "registry.example/mnist:1", **spec: Any) -> Object:
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {**({"image": image} if image else {}), "command": ["python", "train.py"], **spec},
    }


def mpi_job(
    env: Mapping[str, str] | None = None,
    workers: int = 2,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "sterna",
    **spec: Any,
) -> Object:
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    launcher = group(1, name="launcher", env=variables, command=["bash", "-c"], args=["run --metrics-dir /metrics"])
    worker = group(workers, name="worker", gpus=1, pod={"schedulerName": scheduler})
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "keras", "annotations": dict(annotations or {})},
        "spec": {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}, **spec},
    }


def variables_of(pod: Mapping[str, Any], container: int = 0) -> dict[str, Any]:
    """Names and values in a pod's container; of what comes from elsewhere, where from."""
    env = pod["spec"]["containers"][container].get("env", [])
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in env}
