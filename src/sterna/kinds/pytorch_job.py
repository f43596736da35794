"""PyTorchJob `kubeflow.org/v1`: elastic workers that meet by torchrun, or a master and workers of a fixed number."""

from __future__ import annotations

import msgspec

from sterna.errors import UserError
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, Wishes, wishes_of
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.gpu_fraction import gpu_fraction_of
from sterna.kinds.parsing.job_builder import Bounds, Parts, assembled, bounds_of
from sterna.kinds.parsing.pod_template import ReplicaGroup, groups_of
from sterna.kinds.parsing.run_policy import SpecFields, run_policy_of
from sterna.kinds.resource import Resource
from sterna.model.job import Resizing, RestartPolicy

CONTAINER = "pytorch"
TYPES = ("master", "worker")


class _Pair(msgspec.Struct):
    key: str = ""
    value: str = ""


class _Elastic(msgspec.Struct, rename="camel"):
    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    rdzv_host: str | None = None
    rdzv_port: int | None = None
    rdzv_id: str | None = None
    rdzv_conf: list[_Pair] | None = None
    n_proc_per_node: int | None = None
    max_restarts: int | None = None


class _Fields(SpecFields, rename="camel"):
    pytorch_replica_specs: dict[str, msgspec.Raw] | None = None
    elastic_policy: _Elastic | None = None
    nproc_per_node: str | int | None = None


def read(job: JobObject, resource: Resource) -> ParsedJob:
    fields = decoded(job.spec, _Fields, "spec")
    wishes = wishes_of(job.metadata.annotations)
    groups = groups_of(fields.pytorch_replica_specs, TYPES, "pytorchReplicaSpecs", CONTAINER)
    if "master" in groups and groups["master"].replicas > 1:
        raise UserError(f"{groups['master'].place}.replicas is {groups['master'].replicas}; there can be only one.")
    scaled = groups.get("worker") or groups["master"]
    elastic = fields.elastic_policy
    if elastic and scaled.type != "worker":
        raise UserError("spec.pytorchReplicaSpecs.Worker is missing; an elastic PyTorchJob scales its workers.")
    gpu_fraction = gpu_fraction_of(scaled.annotations)
    return assembled(
        job.metadata,
        resource,
        Parts(
            groups=tuple(groups.values()),
            scaled=scaled,
            bounds=_bounds(elastic, wishes, scaled),
            policy=run_policy_of(fields),
            wishes=wishes,
            default_restart=RestartPolicy.ON_FAILURE,
            resizing=Resizing.TORCHRUN if elastic else Resizing.RESTART,
            ownership=PodOwnership.KUBESHARE if gpu_fraction else PodOwnership.OPERATOR,
            gpu_fraction=gpu_fraction,
            variables=_variables(fields, elastic),
        ),
    )


def _bounds(elastic: _Elastic | None, wishes: Wishes, scaled: ReplicaGroup) -> Bounds:
    """Of `elasticPolicy`; annotations make a job elastic that is resized by checkpoint and restart."""
    if elastic is None:
        return bounds_of(scaled.replicas, wishes.minimum, wishes.maximum)
    low = 1 if elastic.min_replicas is None else elastic.min_replicas
    high = max(scaled.replicas, low) if elastic.max_replicas is None else elastic.max_replicas
    if not 1 <= low <= MOST_WORKERS or not 1 <= high <= MOST_WORKERS:
        raise UserError(f"{low} to {high} workers are not possible; write numbers from 1 to {MOST_WORKERS:,}.")
    if low > high:
        raise UserError(f"minReplicas {low} is more than maxReplicas {high}; make it at most as large.")
    return bounds_of(scaled.replicas, low, high)


def _variables(fields: _Fields, elastic: _Elastic | None) -> tuple[tuple[str, str], ...]:
    """What the object says about torchrun; what it does not say follows from the seats."""
    found: dict[str, str] = {}
    processes = fields.nproc_per_node or (elastic.n_proc_per_node if elastic else None)
    if processes:
        found["PET_NPROC_PER_NODE"] = str(processes)
    if elastic is not None:
        if elastic.rdzv_backend:
            found["PET_RDZV_BACKEND"] = elastic.rdzv_backend
        if elastic.rdzv_host:
            found["PET_RDZV_ENDPOINT"] = f"{elastic.rdzv_host}:{elastic.rdzv_port or 29400}"
        if elastic.rdzv_id:
            found["PET_RDZV_ID"] = elastic.rdzv_id
        if elastic.rdzv_conf:
            found["PET_RDZV_CONF"] = ",".join(f"{each.key}={each.value}" for each in elastic.rdzv_conf)
        if elastic.max_restarts is not None:
            found["PET_MAX_RESTARTS"] = str(elastic.max_restarts)
    return tuple(found.items())
