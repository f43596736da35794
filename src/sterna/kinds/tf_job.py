"""TFJob `kubeflow.org/v1`, with E-DRAGON's bounds: how it is read, and the TF_CONFIG of its replicas.

`cluster.worker` names as many workers as there may ever be, so that those who come later are known to those who run
(DRAGON-7, DRAGON-32). In preemptible mode every parameter server's pod runs a chief beside it, one port further on, and
the chiefs are the first workers of the cluster (DRAGON-77).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from sterna.errors import UserError
from sterna.kinds.context import KubeShare, ParseContext
from sterna.kinds.environment.hosts import host_of
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, Wishes, is_true, wishes_of
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.gpu_fraction import MARK, gpu_fraction_of
from sterna.kinds.parsing.job_builder import Bounds, Parts, assembled, bounds_of
from sterna.kinds.parsing.pod_template import ReplicaGroup, groups_of, port_of
from sterna.kinds.parsing.run_policy import SpecFields, is_managed_by_others, run_policy_of
from sterna.kinds.resource import Resource
from sterna.model.job import Resizing, RestartPolicy

CONTAINER = "tensorflow"
PORT_NAME, PORT = "tfjob-port", 2222
CHIEF_PORT_NAME = "chief-port"
TYPES = ("ps", "chief", "master", "evaluator", "worker")
ALL_WORKERS = "AllWorkers"
SINGLE = ("chief", "master", "evaluator")
_SCALED = ("worker", "master", "chief", "ps", "evaluator")


class _Fields(SpecFields, rename="camel"):
    tf_replica_specs: dict[str, msgspec.Raw] | None = None
    most: int | None = msgspec.field(name="max-instances", default=None)
    fewest: int | None = msgspec.field(name="min-instances", default=None)
    node_preference: str | None = msgspec.field(name="node-preference", default=None)
    success_policy: str | None = None


def is_taken(job: JobObject, context: ParseContext) -> bool:
    """DRAGON-10: a KubeShare instance and a plain one may run side by side."""
    marked = is_true(job.metadata.annotations, MARK)
    if context.kubeshare is not KubeShare.BOTH and marked != (context.kubeshare is KubeShare.ONLY):
        return False
    return not is_managed_by_others(decoded(job.spec, SpecFields, "spec"))


def read(job: JobObject, resource: Resource, context: ParseContext) -> ParsedJob:
    fields = decoded(job.spec, _Fields, "spec")
    wishes = wishes_of(job.metadata.annotations)
    groups = groups_of(fields.tf_replica_specs, TYPES, "tfReplicaSpecs", CONTAINER)
    for lone in SINGLE:
        if lone in groups and groups[lone].replicas > 1:
            raise UserError(f"{groups[lone].place}.replicas is {groups[lone].replicas}; there can be only one.")
    if fields.success_policy not in (None, "", ALL_WORKERS):
        raise UserError(
            f"spec.successPolicy is '{fields.success_policy[:40]}'; write {ALL_WORKERS}, or leave it out, and worker 0 "
            "decides."
        )
    scaled = groups[next(each for each in _SCALED if each in groups)]
    bounds, is_elastic = _bounds(fields, wishes, groups, scaled)
    is_marked = is_true(job.metadata.annotations, MARK)
    return assembled(
        job.metadata,
        resource,
        Parts(
            groups=tuple(groups.values()),
            scaled=scaled,
            bounds=bounds,
            policy=run_policy_of(fields),
            wishes=wishes,
            default_restart=RestartPolicy.NEVER,
            resizing=Resizing.IN_PLACE if is_elastic else Resizing.RESTART,
            ownership=PodOwnership.KUBESHARE if is_marked else PodOwnership.OPERATOR,
            gpu_fraction=gpu_fraction_of(scaled.annotations) if is_marked else None,
            node_preference=fields.node_preference or "",
            chiefs=_chiefs(groups, wishes),
            is_done_by_all=fields.success_policy == ALL_WORKERS,
        ),
    )


def _bounds(
    fields: _Fields, wishes: Wishes, groups: Mapping[str, ReplicaGroup], scaled: ReplicaGroup
) -> tuple[Bounds, bool]:
    """And whether they were given at all."""
    low = wishes.minimum if fields.fewest is None else fields.fewest
    high = wishes.maximum if fields.most is None else fields.most
    if (low is None) != (high is None):
        lacking = "max-instances" if high is None else "min-instances"
        raise UserError(f"spec.{lacking} is missing; give both bounds or neither.")
    if low is None or high is None:
        return bounds_of(scaled.replicas, None, None), False
    if not 1 <= low <= MOST_WORKERS or not 1 <= high <= MOST_WORKERS:
        raise UserError(f"{low} to {high} workers are not possible; write numbers from 1 to {MOST_WORKERS:,}.")
    if low > high:
        raise UserError(f"min-instances {low} is more than max-instances {high}; make it at most as large.")
    if "ps" not in groups or "worker" not in groups:
        lacking = "Worker" if "ps" in groups else "PS"
        raise UserError(f"spec.tfReplicaSpecs.{lacking} is missing; a TFJob that grows and shrinks has PS and Worker.")
    return bounds_of(scaled.replicas, low, high), True


def _chiefs(groups: Mapping[str, ReplicaGroup], wishes: Wishes) -> int:
    if "ps" not in groups:
        return 0
    names = {port.name for port in groups["ps"].main.ports}
    return groups["ps"].replicas if wishes.is_preemptible or CHIEF_PORT_NAME in names else 0


def port(parsed_job: ParsedJob, type_: str) -> int:
    return port_of(parsed_job.templates.get(type_, {}), PORT_NAME, PORT)


def tf_config(parsed_job: ParsedJob, type_: str, index: int, domain: str) -> str:
    """Addresses of all replicas by type, and which of them this one is."""
    task = index + parsed_job.chiefs if type_ == "worker" else index
    counts = tuple(
        (each, _count(parsed_job, each), port(parsed_job, each)) for each in parsed_job.templates if each != "evaluator"
    )
    ref = parsed_job.ref
    cluster = _cluster(ref.name, ref.namespace, counts, parsed_job.chiefs, domain)
    return f'{{"cluster":{cluster},"task":{{"type":"{type_}","index":{task}}},"environment":"cloud"}}'


def _count(parsed_job: ParsedJob, type_: str) -> int:
    """How many replicas of a type there may ever be."""
    spec = parsed_job.spec
    if type_ in parsed_job.leading:
        return parsed_job.leading.count(type_)
    if type_ == spec.worker.type:
        return spec.maximum - len(parsed_job.leading)
    return next((each.count for each in spec.replicas if each.type == type_), 0)


@lru_cache(maxsize=256)
def _cluster(job: str, namespace: str, counts: tuple[tuple[str, int, int], ...], chiefs: int, domain: str) -> str:
    """The same text for every replica: the largest part of it, so it is made once."""
    cluster = {
        type_: [f"{host_of(job, namespace, type_, index, domain)}:{port_}" for index in range(count)]
        for type_, count, port_ in counts
    }
    if chiefs:
        port_ = next(each for type_, _, each in counts if type_ == "ps") + 1
        at_chiefs = [f"{host_of(job, namespace, 'ps', index, domain)}:{port_}" for index in range(chiefs)]
        cluster["worker"] = at_chiefs + cluster.get("worker", [])
    return msgspec.json.encode(cluster).decode()
