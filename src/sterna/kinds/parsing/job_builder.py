"""From groups of replicas to a `ParsedJob`: what all kinds with pod templates have in common.

Decisions know one type of worker and, beside it, replicas that need no devices. On a cluster a Master or Chief that
needs devices counts as the first worker (`ParsedJob.leading`), as large as the larger of the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import structs

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.objects import Meta
from sterna.kinds.parsed_job import GpuFraction, JobRef, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import NO_PROGRESS, JobAnnotations
from sterna.kinds.parsing.pod_template import (
    ReplicaGroup,
    common_needs,
    expand_variables,
    parse_restart_policy,
    pod_template,
    replica_spec,
)
from sterna.kinds.parsing.resource_requests import NOTHING, Demand
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.resource import Resource
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec, Resizing, RestartPolicy, priority_of_class

MAX_NAME_LENGTH = 63
"""Of a service, and of a pod whose name is a host name."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Bounds:
    """Fewest and most workers, and the number asked for."""

    low: int
    high: int
    asked: int

    def clamp(self, asked: int | None) -> Bounds:
        """Replace the number asked for, moved into the bounds."""
        wanted = self.asked if asked is None else asked
        return Bounds(self.low, self.high, min(max(wanted, self.low), self.high))

    def plus(self, count: int) -> Bounds:
        return Bounds(self.low + count, self.high + count, self.asked + count)


@dataclass(frozen=True)
class JobParts:
    """Parts that a job is built from."""

    groups: Sequence[ReplicaGroup]
    """In the order of their start."""
    scaled: ReplicaGroup
    bounds: Bounds
    policy: RunPolicy
    annotations: JobAnnotations
    default_restart: RestartPolicy
    """Restart policy of a group that names none; the kubelet gets it too."""
    decisive: ReplicaGroup | None = None
    """The group whose restart policy and grace period are the job's; None: the scaled one."""
    restart: RestartPolicy | None = None
    """What Sterna does about failures, where that is not what the kubelet does."""
    resizing: Resizing = Resizing.RESTART
    checkpoint: str = ""
    ownership: PodOwnership = PodOwnership.OPERATOR
    gpu_fraction: GpuFraction | None = None
    category: str = ""
    progress: ProgressSpec = NO_PROGRESS
    node_preference: str = ""
    priority: int = 0
    grace_seconds: float | None = None
    """None: that of the pod template."""
    variables: tuple[tuple[str, str], ...] = ()
    fixed_env: Mapping[str, str] = field(default_factory=dict)
    """Variables on one machine that the manifest cannot change."""
    chiefs: int = 0
    notices: Sequence[str] = ()
    is_done_by_first: bool = False
    survives_replica_loss: bool = False


def build_job(meta: Meta, resource: Resource, parts: JobParts, context: ParseContext) -> ParsedJob:
    leading = _leading(parts) if context.runs_images else ()
    annotations, policy = parts.annotations, parts.policy
    bounds = parts.bounds.clamp(annotations.workers).plus(len(leading))
    servers = [each for each in parts.groups if each is not parts.scaled and each.type not in leading]
    if context.runs_images:
        check_pod_names(meta.name, parts, bounds.high)
    needs = common_needs(parts.scaled, (each for each in parts.groups if each is not parts.scaled))
    worker = _largest(parts, leading)
    decisive = parts.decisive or parts.scaled
    restart = parts.restart or parse_restart_policy(decisive.restart, parts.default_restart)
    spec = JobSpec(
        name=meta.name,
        kind=resource.kind,
        replicas=_replicas(parts, leading, bounds.asked, worker, None if context.runs_images else meta.name),
        minimum=bounds.low,
        maximum=bounds.high,
        request=bounds.asked,
        priority=_priority(parts, context),
        priority_class=_priority_class(parts) if context.runs_images else "",
        category=annotations.category or parts.category,
        restart=restart,
        restarts=_other_restarts(parts, restart),
        backoff_limit=policy.backoff_limit,
        is_done_by_first=parts.is_done_by_first,
        grace_seconds=decisive.grace_seconds if parts.grace_seconds is None else parts.grace_seconds,
        resizing=parts.resizing,
        checkpoint=parts.checkpoint or annotations.checkpoint,
        progress=merge_progress(annotations.progress, parts.progress),
        ttl_seconds=policy.ttl_seconds,
        deadline_seconds=policy.deadline_seconds,
        notices=tuple(parts.notices),
    )
    return ParsedJob(
        ref=JobRef(resource, meta.namespace, meta.name, meta.uid),
        spec=spec,
        shape=_shape(worker, servers, needs.selector),
        needs=needs,
        templates={each.type: pod_template(each, parts.default_restart, needs) for each in parts.groups},
        ownership=parts.ownership,
        submitted_at=parse_timestamp(meta.creation_timestamp),
        clean_pods=policy.clean_pods,
        generation=meta.generation,
        is_suspended=policy.is_suspended or annotations.is_suspended,
        node_preference=parts.node_preference or annotations.node_preference,
        gpu_fraction=parts.gpu_fraction,
        leading=leading,
        variables=parts.variables,
        chiefs=parts.chiefs,
        survives_replica_loss=parts.survives_replica_loss,
    )


def rename_job(parsed_job: ParsedJob, parts: JobParts, meta: Meta, context: ParseContext) -> ParsedJob:
    """The job of another object that was built from the same parts."""
    if context.runs_images:
        check_pod_names(meta.name, parts, parsed_job.spec.maximum)
    return structs.replace(
        parsed_job,
        ref=JobRef(parsed_job.ref.resource, meta.namespace, meta.name, meta.uid),
        spec=replace(parsed_job.spec, name=meta.name),
        submitted_at=parse_timestamp(meta.creation_timestamp),
        generation=meta.generation,
    )


def make_bounds(asked: int, low: int | None, high: int | None) -> Bounds:
    """Bounds, or those of a job that keeps its size where none are given."""
    first = max(1, asked) if low is None else low
    last = max(first, asked) if high is None else high
    if first > last:
        raise UserError(f"At least {first} workers are more than at most {last}; make the first at most as large.")
    return Bounds(first, last, asked).clamp(None)


def check_pod_names(name: str, parts: JobParts, most: int) -> None:
    """Names of pods and services are made of the job's, and must fit."""
    if not parts.ownership.creates_pods:
        return
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name[:80]}' cannot be the name of a job whose pods call each other by name; use small letters, digits "
            "and '-', beginning with a letter."
        )
    last = {each.type: most if each is parts.scaled else each.replicas for each in parts.groups}
    suffix = max(len(f"-{type_}-{max(0, count - 1)}") for type_, count in last.items())
    if len(name) + suffix > MAX_NAME_LENGTH:
        raise UserError(
            f"The name '{name[:80]}' has {len(name)} letters, so that those of its pods do not fit; use at most "
            f"{MAX_NAME_LENGTH - suffix}."
        )


@lru_cache(maxsize=256)
def parse_timestamp(timestamp: str | None) -> float:
    """Seconds since 1970; 0 if it is no timestamp. Cached: the objects of a burst share a few seconds."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _leading(parts: JobParts) -> tuple[str, ...]:
    """Replicas of other types that need devices. A job that shrinks keeps only its first worker, so it can have but
    one of them; a job of fixed size may have any number."""
    others = [each for each in parts.groups if each is not parts.scaled and each.demand.devices]
    if parts.ownership.is_delegated:
        return ()
    names = tuple(each.type for each in others for _ in range(each.replicas))
    if len(names) > 1 and parts.bounds.low != parts.bounds.high:
        raise UserError(
            f"{others[-1].place} asks for devices, and so does {others[0].place}; in a job that grows and shrinks only "
            "workers and one Master or Chief may. Take the devices away from one of them, or give the job a fixed size."
            if len(others) > 1
            else f"{others[0].place} asks for {len(names)} replicas with devices; in a job that grows and shrinks only "
            "workers and one Master or Chief may. Take their devices away, or give the job a fixed size."
        )
    return names


def _priority(parts: JobParts, context: ParseContext) -> int:
    """The annotation, else the kind's value; on one machine also the value of a PriorityClass of Kubernetes itself."""
    given = parts.priority if parts.annotations.priority is None else parts.annotations.priority
    name = "" if context.runs_images else _priority_class(parts)
    return (priority_of_class(name, {}) or 0) if name else given


def _priority_class(parts: JobParts) -> str:
    """The pod template's PriorityClass, unless the job has a priority of its own."""
    has_own = parts.priority or parts.annotations.priority is not None
    return "" if has_own else parts.scaled.spec.priority_class_name


def _other_restarts(parts: JobParts, usual: RestartPolicy) -> tuple[tuple[str, RestartPolicy], ...]:
    """Restart policies of types that have another than the job."""
    if parts.restart is not None:
        return ()
    found = ((each.type, parse_restart_policy(each.restart, parts.default_restart)) for each in parts.groups)
    return tuple(each for each in found if each[1] is not usual)


def _devices(parts: JobParts, group: ReplicaGroup) -> int:
    return parts.gpu_fraction.request if parts.gpu_fraction and group is parts.scaled else group.demand.devices


def _largest(parts: JobParts, leading: Sequence[str]) -> Demand:
    """Demand of one worker, as rules count it."""
    scaled = parts.scaled.demand
    worker = Demand(_devices(parts, parts.scaled), scaled.cpus, scaled.memory_bytes)
    for each in parts.groups:
        if each.type in leading:
            worker = worker.most(each.demand)
    return worker


def _replicas(
    parts: JobParts, leading: Sequence[str], asked: int, worker: Demand, local_name: str | None
) -> tuple[ReplicaSpec, ...]:
    """The scaled type first: `JobSpec.worker` finds it there. `local_name`: of a job whose variables are expanded."""
    found = []
    for each in sorted(parts.groups, key=lambda each: each is not parts.scaled):
        if each is parts.scaled:
            spec = replica_spec(each, asked, worker.devices)
            spec = replace(spec, cpus=worker.cpus, memory_bytes=worker.memory_bytes) if leading else spec
        elif each.type not in leading:
            spec = replica_spec(each, each.replicas, each.demand.devices)
        else:
            continue
        found.append(spec if local_name is None else expand_variables(spec, each, local_name, parts.fixed_env))
    return tuple(found)


def _shape(worker: Demand, servers: Sequence[ReplicaGroup], selector: tuple[tuple[str, str], ...]) -> Shape:
    """Replicas that are not scaled count as parameter servers, each as large as the largest of them."""
    largest = NOTHING
    for each in servers:
        largest = largest.most(each.demand)
    count = sum(each.replicas for each in servers)
    cpus, memory_bytes = (largest.cpus, largest.memory_bytes) if count else (0, 0)
    return Shape(worker.devices, worker.cpus, worker.memory_bytes, count, cpus, memory_bytes, selector)


def merge_progress(first: ProgressSpec, second: ProgressSpec) -> ProgressSpec:
    """Fields of the first; where it has none, of the second."""
    return ProgressSpec(
        {**second.sources, **first.sources},
        first.metric or second.metric,
        first.goal or second.goal,
        first.total or second.total,
    )
