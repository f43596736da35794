"""PyTorchJob `kubeflow.org/v1`: elastic workers that meet by torchrun, or a master and a fixed number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.environment.torch import torch_environment
from sterna.kinds.kind import READ, Kind, Permission, Port
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import JobAnnotations, WorkerCount, parse_annotations
from sterna.kinds.parsing.fields import FieldReader, Fields, decode_fields
from sterna.kinds.parsing.gpu_fraction import parse_gpu_fraction
from sterna.kinds.parsing.job_builder import Bounds, JobParts, build_job, make_bounds
from sterna.kinds.parsing.kubeflow import bounds_in_annotations, check_single, kubeflow_labels
from sterna.kinds.parsing.pod_template import ReplicaGroup, parse_groups, require_command
from sterna.kinds.parsing.run_policy import RunPolicyFields, SpecFields, is_managed_by_others, parse_run_policy
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource
from sterna.model.job import Resizing, RestartPolicy

PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
_CONTAINER = "pytorch"
_TYPES = ("master", "worker")
_RENDEZVOUS_PORT = 29400


class _Pair(msgspec.Struct):
    key: str = ""
    value: str = ""


class _Elastic(Fields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone", "nProcPerNode", "metrics"}
        | {"maxRestarts"}
    )

    min_replicas: WorkerCount | None = None
    max_replicas: WorkerCount | None = None
    rdzv_backend: str | None = None
    rdzv_host: str | None = None
    rdzv_port: int | None = None
    rdzv_id: str | None = None
    rdzv_conf: list[_Pair] | None = None
    n_proc_per_node: int | None = None
    max_restarts: int | None = None


class PyTorchJobFields(SpecFields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = RunPolicyFields.ignored | {"nprocPerNode"}

    pytorch_replica_specs: dict[str, msgspec.Raw] | None = None
    elastic_policy: _Elastic | None = None
    nproc_per_node: str | int | None = None


def _is_managed(job: JobObject, context: ParseContext) -> bool:
    return not is_managed_by_others(decode_fields(job.spec, SpecFields, "spec"))


def _parse(job: JobObject, context: ParseContext) -> ParsedJob:
    reader = FieldReader(context.runs_images)
    fields = reader.decode(job.spec, PyTorchJobFields, "spec")
    annotations = parse_annotations(job.metadata.annotations)
    groups = parse_groups(reader, fields.pytorch_replica_specs, _TYPES, "pytorchReplicaSpecs", _CONTAINER)
    check_single(groups, ("master",))
    scaled = groups.get("worker") or groups["master"]
    elastic = fields.elastic_policy
    if elastic and scaled.type != "worker":
        raise UserError("spec.pytorchReplicaSpecs.Worker is missing; an elastic PyTorchJob scales its workers.")
    if not context.runs_images:
        for group in groups.values():
            require_command(group)
    gpu_fraction = parse_gpu_fraction(scaled.annotations)
    parts = JobParts(
        groups=tuple(groups.values()),
        scaled=scaled,
        bounds=_bounds(elastic, annotations, scaled),
        policy=parse_run_policy(fields),
        annotations=annotations,
        default_restart=RestartPolicy.ON_FAILURE,
        resizing=Resizing.TORCHRUN if elastic else Resizing.RESTART,
        ownership=PodOwnership.KUBESHARE if gpu_fraction else PodOwnership.OPERATOR,
        gpu_fraction=gpu_fraction,
        variables=_variables(fields, elastic),
        notices=reader.notices,
    )
    return build_job(job.metadata, PYTORCH_JOBS, parts, context)


def _bounds(elastic: _Elastic | None, annotations: JobAnnotations, scaled: ReplicaGroup) -> Bounds:
    """Bounds of `elasticPolicy`; annotations make a job elastic that is resized by checkpoint and restart."""
    if elastic is None:
        return make_bounds(scaled.replicas, annotations.minimum, annotations.maximum)
    low = 1 if elastic.min_replicas is None else elastic.min_replicas
    high = max(scaled.replicas, low) if elastic.max_replicas is None else elastic.max_replicas
    if low > high:
        raise UserError(
            f"spec.elasticPolicy: minReplicas {low} is more than maxReplicas {high}; make it at most as large."
        )
    return make_bounds(scaled.replicas, low, high)


def _variables(fields: PyTorchJobFields, elastic: _Elastic | None) -> tuple[tuple[str, str], ...]:
    """Variables of torchrun that the manifest sets; the others follow from the assignment."""
    found: dict[str, str] = {}
    processes = fields.nproc_per_node or (elastic.n_proc_per_node if elastic else None)
    if processes:
        found["PET_NPROC_PER_NODE"] = str(processes)
    if elastic is not None:
        if elastic.rdzv_backend:
            found["PET_RDZV_BACKEND"] = elastic.rdzv_backend
        if elastic.rdzv_host:
            found["PET_RDZV_ENDPOINT"] = f"{elastic.rdzv_host}:{elastic.rdzv_port or _RENDEZVOUS_PORT}"
        if elastic.rdzv_id:
            found["PET_RDZV_ID"] = elastic.rdzv_id
        if elastic.rdzv_conf:
            found["PET_RDZV_CONF"] = ",".join(f"{each.key}={each.value}" for each in elastic.rdzv_conf)
        if elastic.max_restarts is not None:
            found["PET_MAX_RESTARTS"] = str(elastic.max_restarts)
    return tuple(found.items())


def _scale_patch(job: ParsedJob, fields: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    if isinstance(fields.get("elasticPolicy"), dict):
        return {"spec": {"elasticPolicy": {"minReplicas": low, "maxReplicas": high}}}
    return bounds_in_annotations(job, fields, low, high)


KIND = register(
    Kind(
        resource=PYTORCH_JOBS,
        summary="PyTorch: torchrun's elastic agents, or a master and workers",
        other_versions=("kubeflow.org/v1beta2",),
        parse=_parse,
        container=_CONTAINER,
        port=Port("pytorchjob-port", 23456),
        has_foreign_definition=True,
        install_hint="install Kubeflow's definition of it",
        is_managed=_is_managed,
        permissions=(
            Permission((*READ, "delete"), "jobs, and their end when their time to live is over"),
            Permission(("patch",), "what must be remembered: the definition is Kubeflow's"),
            Permission(("patch",), "conditions and counts of replicas", "status"),
        ),
        environment=torch_environment,
        pod_labels=kubeflow_labels,
        scale_patch=_scale_patch,
    )
)
