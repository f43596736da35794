"""From groups of replicas to a `Submitted`: what all kinds that have templates do alike.

Decisions know one kind of worker and, beside them, replicas that need no devices. A Master or Chief that does need
devices is counted as the first worker (`Submitted.leading`), as large as the larger of the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import structs

from sterna.errors import UserError
from sterna.kinds.objects import Meta
from sterna.kinds.parsed_job import GpuFraction, JobRef, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import NO_PROGRESS, Wishes
from sterna.kinds.parsing.pod_template import ReplicaGroup, parsed_job_template, replica_of, restart_of, shared_needs
from sterna.kinds.parsing.resource_requests import NOTHING, Demand
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.resource import Resource
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec, Resizing, RestartPolicy

LONGEST_NAME = 63
"""Of a pod whose name is a host's, and of a service."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Bounds:
    """How few workers, how many, and how many were asked for."""

    low: int
    high: int
    asked: int

    def within(self, asked: int | None) -> Bounds:
        """With another number asked for, as near to it as the bounds allow."""
        wish = self.asked if asked is None else asked
        return Bounds(self.low, self.high, min(max(wish, self.low), self.high))

    def plus(self, count: int) -> Bounds:
        return Bounds(self.low + count, self.high + count, self.asked + count)


@dataclass(frozen=True)
class Parts:
    """What a job is put together from."""

    groups: Sequence[ReplicaGroup]
    """In the order of their start."""
    scaled: ReplicaGroup
    bounds: Bounds
    policy: RunPolicy
    wishes: Wishes
    default_restart: RestartPolicy
    """Of a group that does not say: what the kubelet is told, too."""
    restart: RestartPolicy | None = None
    """What we do about failures, where that is not what the kubelet is told."""
    resizing: Resizing = Resizing.RESTART
    ownership: PodOwnership = PodOwnership.OPERATOR
    gpu_fraction: GpuFraction | None = None
    category: str = ""
    progress: ProgressSpec = NO_PROGRESS
    node_preference: str = ""
    priority: int = 0
    variables: tuple[tuple[str, str], ...] = ()
    chiefs: int = 0
    notices: tuple[str, ...] = ()
    is_done_by_all: bool = False


def assembled(meta: Meta, resource: Resource, parts: Parts) -> ParsedJob:
    leading = _leading(parts)
    bounds = parts.bounds.within(parts.wishes.workers).plus(len(leading))
    servers = [each for each in parts.groups if each is not parts.scaled and each.type not in leading]
    if parts.ownership.creates_pods:
        check_name(meta.name, parts.groups, parts.scaled, bounds.high)
    needs = shared_needs(parts.scaled, (each for each in parts.groups if each is not parts.scaled))
    worker = _largest(parts, leading)
    policy, wishes = parts.policy, parts.wishes
    spec = JobSpec(
        name=meta.name,
        kind=resource.kind,
        replicas=_replicas(parts, leading, bounds.asked, worker),
        minimum=bounds.low,
        maximum=bounds.high,
        request=bounds.asked,
        priority=parts.priority if wishes.priority is None else wishes.priority,
        priority_class="" if parts.priority or wishes.priority is not None else parts.scaled.spec.priority_class_name,
        category=wishes.category or parts.category,
        restart=parts.restart or restart_of(parts.scaled.restart, parts.default_restart),
        restarts=_restarts(parts),
        backoff_limit=policy.backoff_limit,
        is_done_by_all=parts.is_done_by_all,
        grace_seconds=parts.scaled.grace_seconds,
        resizing=parts.resizing,
        progress=_progress(wishes.progress, parts.progress),
        ttl_seconds=policy.ttl_seconds,
        deadline_seconds=policy.deadline_seconds,
        notices=parts.notices,
    )
    return ParsedJob(
        ref=JobRef(resource, meta.namespace, meta.name, meta.uid),
        spec=spec,
        shape=_shape(worker, servers, needs.selector),
        needs=needs,
        templates={each.type: parsed_job_template(each, parts.default_restart, needs) for each in parts.groups},
        ownership=parts.ownership,
        submitted_at=seconds_of(meta.creation_timestamp),
        clean_pods=policy.clean_pods,
        generation=meta.generation,
        is_suspended=policy.is_suspended or wishes.is_suspended,
        node_preference=parts.node_preference or wishes.node_preference,
        gpu_fraction=parts.gpu_fraction,
        leading=leading,
        variables=parts.variables,
        chiefs=parts.chiefs,
    )


def renamed(parsed_job: ParsedJob, parts: Parts, meta: Meta) -> ParsedJob:
    """The same as another object asks for it, which was assembled of the same parts."""
    if parts.ownership.creates_pods:
        check_name(meta.name, parts.groups, parts.scaled, parsed_job.spec.maximum)
    return structs.replace(
        parsed_job,
        ref=JobRef(parsed_job.ref.resource, meta.namespace, meta.name, meta.uid),
        spec=replace(parsed_job.spec, name=meta.name),
        submitted_at=seconds_of(meta.creation_timestamp),
        generation=meta.generation,
    )


def bounds_of(asked: int, low: int | None, high: int | None) -> Bounds:
    """Bounds that were given in any way, or those of a job that keeps its size."""
    first = max(1, asked) if low is None else low
    last = max(first, asked) if high is None else high
    if first > last:
        raise UserError(f"At least {first} workers are more than at most {last}; make the first at most as large.")
    return Bounds(first, last, asked).within(None)


def check_name(name: str, groups: Sequence[ReplicaGroup], scaled: ReplicaGroup, most: int) -> None:
    """Names of pods and services are made of the job's, and must fit."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name[:80]}' cannot be the name of a job whose pods call each other by name; use small letters, digits "
            "and '-', beginning with a letter."
        )
    last = {each.type: most if each is scaled else each.replicas for each in groups}
    suffix = max(len(f"-{type_}-{max(0, count - 1)}") for type_, count in last.items())
    if len(name) + suffix > LONGEST_NAME:
        raise UserError(
            f"The name '{name[:80]}' has {len(name)} letters, so that those of its pods do not fit; use at most "
            f"{LONGEST_NAME - suffix}."
        )


@lru_cache(maxsize=256)
def seconds_of(timestamp: str | None) -> float:
    """A time as Kubernetes writes it, since 1970; 0 if it is none. Objects of a burst tell of the same few seconds."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _leading(parts: Parts) -> tuple[str, ...]:
    """Replicas of other types that need devices. A job that shrinks keeps its first worker only, so there can be but
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


def _restarts(parts: Parts) -> tuple[tuple[str, RestartPolicy], ...]:
    """Of types that have a policy of their own."""
    if parts.restart is not None:
        return ()
    usual = restart_of(parts.scaled.restart, parts.default_restart)
    found = ((each.type, restart_of(each.restart, parts.default_restart)) for each in parts.groups)
    return tuple(each for each in found if each[1] is not usual)


def _devices(parts: Parts, group: ReplicaGroup) -> int:
    return parts.gpu_fraction.request if parts.gpu_fraction and group is parts.scaled else group.demand.devices


def _largest(parts: Parts, leading: Sequence[str]) -> Demand:
    """What one worker needs, as rules count it."""
    scaled = parts.scaled.demand
    worker = Demand(_devices(parts, parts.scaled), scaled.cpus, scaled.memory_bytes)
    for each in parts.groups:
        if each.type in leading:
            worker = worker.most(each.demand)
    return worker


def _replicas(parts: Parts, leading: Sequence[str], asked: int, worker: Demand) -> tuple[ReplicaSpec, ...]:
    found = []
    for each in sorted(
        parts.groups, key=lambda each: each is not parts.scaled
    ):  # whoever is scaled is told by its place
        if each is parts.scaled:
            spec = replica_of(each, asked, worker.devices)
            found.append(replace(spec, cpus=worker.cpus, memory_bytes=worker.memory_bytes) if leading else spec)
        elif each.type not in leading:
            found.append(replica_of(each, each.replicas, each.demand.devices))
    return tuple(found)


def _shape(worker: Demand, servers: Sequence[ReplicaGroup], selector: tuple[tuple[str, str], ...]) -> Shape:
    """Replicas that are not scaled count as parameter servers, each as much as the largest of them."""
    largest = NOTHING
    for each in servers:
        largest = largest.most(each.demand)
    count = sum(each.replicas for each in servers)
    cpus, memory_bytes = (largest.cpus, largest.memory_bytes) if count else (0, 0)
    return Shape(worker.devices, worker.cpus, worker.memory_bytes, count, cpus, memory_bytes, selector)


def _progress(wished: ProgressSpec, known: ProgressSpec) -> ProgressSpec:
    """What annotations say, and otherwise what the kind says."""
    return ProgressSpec(
        wished.stdout or known.stdout,
        wished.csv or known.csv,
        wished.tensorboard or known.tensorboard,
        wished.metric or known.metric,
        wished.goal or known.goal,
        wished.total or known.total,
    )
