"""TFJob `kubeflow.org/v1`, with E-DRAGON's bounds `min-instances` and `max-instances`.

In preemptible mode the pod of every parameter server runs a chief beside it, on the next port, and the chiefs are the
first workers of the TensorFlow cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from sterna.errors import UserError
from sterna.kinds.context import KubeShare, ParseContext
from sterna.kinds.environment.tensorflow import tf_environment
from sterna.kinds.kind import READ, Kind, Permission, Port, ReplicaName
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import JobAnnotations, WorkerCount, is_true, parse_annotations
from sterna.kinds.parsing.fields import FieldReader, decode_fields
from sterna.kinds.parsing.gpu_fraction import MARK, parse_gpu_fraction
from sterna.kinds.parsing.job_builder import Bounds, JobParts, build_job, make_bounds
from sterna.kinds.parsing.kubeflow import bounds_in_annotations, check_single, kubeflow_labels
from sterna.kinds.parsing.pod_template import ReplicaGroup, parse_groups, require_command
from sterna.kinds.parsing.run_policy import RunPolicyFields, SpecFields, is_managed_by_others, parse_run_policy
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource
from sterna.model.job import Resizing, RestartPolicy

TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
CHIEF_PORT_NAME = "chief-port"
_CONTAINER = "tensorflow"
_TYPES = ("ps", "chief", "master", "evaluator", "worker")
_SINGLE = ("chief", "master", "evaluator")
_SCALED = ("worker", "master", "chief", "ps", "evaluator")
_ALL_WORKERS = "AllWorkers"
_FEWEST, _MOST = "min-instances", "max-instances"


class TFJobFields(SpecFields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = RunPolicyFields.ignored | {"enableDynamicWorker", "node-preference"}

    tf_replica_specs: dict[str, msgspec.Raw] | None = None
    most: WorkerCount | None = msgspec.field(name=_MOST, default=None)
    fewest: WorkerCount | None = msgspec.field(name=_FEWEST, default=None)
    node_preference: str | None = msgspec.field(name="node-preference", default=None)
    success_policy: str | None = None


def _is_managed(job: JobObject, context: ParseContext) -> bool:
    """An operator for KubeShare and one for the rest may run side by side."""
    is_marked = is_true(job.metadata.annotations, MARK)
    if context.kubeshare is not KubeShare.BOTH and is_marked != (context.kubeshare is KubeShare.ONLY):
        return False
    return not is_managed_by_others(decode_fields(job.spec, SpecFields, "spec"))


def _parse(job: JobObject, context: ParseContext) -> ParsedJob:
    reader = FieldReader(context.runs_images)
    fields = reader.decode(job.spec, TFJobFields, "spec")
    annotations = parse_annotations(job.metadata.annotations)
    groups = parse_groups(reader, fields.tf_replica_specs, _TYPES, "tfReplicaSpecs", _CONTAINER)
    check_single(groups, _SINGLE)
    if fields.success_policy not in (None, "", _ALL_WORKERS):
        raise UserError(
            f"spec.successPolicy is '{fields.success_policy[:40]}'; write {_ALL_WORKERS}, or leave it out, and worker "
            "0 decides."
        )
    if not context.runs_images:
        for group in groups.values():
            require_command(group)
    scaled = groups[next(each for each in _SCALED if each in groups)]
    bounds, is_elastic = _bounds(fields, annotations, groups, scaled)
    is_marked = is_true(job.metadata.annotations, MARK)
    parts = JobParts(
        groups=tuple(groups.values()),
        scaled=scaled,
        bounds=bounds,
        policy=parse_run_policy(fields),
        annotations=annotations,
        default_restart=RestartPolicy.NEVER,
        resizing=Resizing.IN_PLACE if is_elastic and context.runs_images else Resizing.RESTART,
        ownership=PodOwnership.KUBESHARE if is_marked else PodOwnership.OPERATOR,
        gpu_fraction=parse_gpu_fraction(scaled.annotations) if is_marked else None,
        node_preference=fields.node_preference or "",
        chiefs=_chiefs(groups, annotations) if context.runs_images else 0,
        notices=reader.notices,
        is_done_by_first=fields.success_policy != _ALL_WORKERS,
        survives_replica_loss="ps" in groups and context.runs_images,
    )
    return build_job(job.metadata, TF_JOBS, parts, context)


def _bounds(
    fields: TFJobFields, annotations: JobAnnotations, groups: Mapping[str, ReplicaGroup], scaled: ReplicaGroup
) -> tuple[Bounds, bool]:
    """The bounds, and whether the manifest gives any."""
    low = annotations.minimum if fields.fewest is None else fields.fewest
    high = annotations.maximum if fields.most is None else fields.most
    if (low is None) != (high is None):
        raise UserError(f"spec.{_MOST if high is None else _FEWEST} is missing; give both bounds or neither.")
    if low is None or high is None:
        return make_bounds(scaled.replicas, None, None), False
    if low > high:
        raise UserError(f"spec: {_FEWEST} {low} is more than {_MOST} {high}; make it at most as large.")
    if "ps" not in groups or "worker" not in groups:
        lacking = "Worker" if "ps" in groups else "PS"
        raise UserError(f"spec.tfReplicaSpecs.{lacking} is missing; a TFJob that grows and shrinks has PS and Worker.")
    return make_bounds(scaled.replicas, low, high), True


def _chiefs(groups: Mapping[str, ReplicaGroup], annotations: JobAnnotations) -> int:
    if "ps" not in groups:
        return 0
    names = {port.name for port in groups["ps"].main.ports}
    return groups["ps"].replicas if annotations.is_preemptible or CHIEF_PORT_NAME in names else 0


def _selector_labels(job: ParsedJob, replica: ReplicaName) -> dict[str, str]:
    return {
        "group-name": "kubeflow.org",
        "tf-job-name": job.ref.name,
        "tf-replica-type": replica.type,
        "tf-replica-index": str(replica.index),
    }


def _pod_labels(job: ParsedJob, replica: ReplicaName) -> dict[str, str]:
    labels = {**kubeflow_labels(job, replica), **_selector_labels(job, replica), "tf-job-workerid": replica.start_id}
    return {**labels, "tf-job-role": "master"} if replica.is_first else labels


def _scale_patch(job: ParsedJob, fields: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    if {_FEWEST, _MOST} & fields.keys():
        return {"spec": {_FEWEST: low, _MOST: high}}
    return bounds_in_annotations(job, fields, low, high)


KIND = register(
    Kind(
        resource=TF_JOBS,
        summary="TensorFlow with parameter servers, elastic by `min-instances` and `max-instances`",
        other_versions=("kubeflow.org/v1beta2",),
        parse=_parse,
        container=_CONTAINER,
        port=Port("tfjob-port", 2222, is_declared=True),
        has_service_per_replica=True,
        takes_kubeshare_mark=True,
        is_managed=_is_managed,
        permissions=(
            Permission((*READ, "delete"), "jobs, and their end when their time to live is over"),
            Permission(("patch",), "what must be remembered where Kubeflow's definition has no place for it"),
            Permission(("patch",), "conditions and counts of replicas", "status"),
        ),
        environment=tf_environment,
        pod_labels=_pod_labels,
        selector_labels=_selector_labels,
        scale_patch=_scale_patch,
    )
)
