"""A gang as its pods see it: ranks, size, addresses, and the assignment of all replicas.

Built once per gang and used for each member: 500 pods of one gang may be created at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sterna.backends.kubernetes.api.assignment import encode_assignment
from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.hosts import host_of
from sterna.kinds.environment.gang import LEADERS, UNRANKED, Gang, GangMember, rank_order
from sterna.kinds.kind import Kind
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.parsing.pod_template import port_in
from sterna.kinds.registry import kind_of


@dataclass(frozen=True)
class ClusterDomain:
    """DNS domain under which pods resolve the names of services."""

    cluster_domain: str = ""
    """Appended to names of services, as DRAGON's CUSTOM_CLUSTER_DOMAIN; empty: `.svc` is enough."""


class GangRanks:
    """All replicas of a job that are to run together."""

    def __init__(self, replicas: tuple[ReplicaAssignment, ...]) -> None:
        self.replicas = replicas
        ordered = sorted(replicas, key=lambda each: rank_order((each.type, each.ordinal)))
        self._ranks = {(replica.type, replica.ordinal): rank for rank, replica in enumerate(ordered)}
        self.size = sum(replica.type not in UNRANKED for replica in replicas)
        self.assignment = encode_assignment(replicas)

    def rank(self, replica: ReplicaAssignment) -> int:
        """Chief or master first, then workers, then types without a rank; 0 for a replica outside the gang."""
        return self._ranks.get((replica.type, replica.ordinal), 0)


@lru_cache(maxsize=64)
def _gang_ranks(replicas: tuple[ReplicaAssignment, ...]) -> GangRanks:
    return GangRanks(replicas)


def gang_ranks(replicas: Sequence[ReplicaAssignment]) -> GangRanks:
    return _gang_ranks(tuple(replicas))


def framework_variables(
    job: ParsedJob, replica: ReplicaAssignment, ranks: GangRanks, attempt: int, domain: str
) -> dict[str, str]:
    """Variables that the framework of the job's kind looks for."""
    kind, spec, ref = kind_of(job.ref.resource), job.spec, job.ref
    leader = next((each for each in LEADERS if each in job.templates), spec.worker.type)
    gang = Gang(
        rendezvous_id=f"{ref.namespace}-{ref.name}-{attempt}",
        size=ranks.size,
        host=host_of(ref.name, ref.namespace, leader, 0, domain),
        port=replica_port(job, leader),
        minimum=spec.minimum,
        maximum=spec.maximum,
        addresses=_addresses(job, kind, domain),
        chiefs=job.chiefs,
        variables=dict(job.variables),
    )
    type_, number = job.framework_name(replica.type, replica.ordinal)
    return kind.environment(spec, GangMember(type_, number, ranks.rank(replica), replica.ordinal == 0), gang)


def replica_port(job: ParsedJob, type_: str) -> int:
    """The port on which replicas of a type listen: the template's, or the kind's default."""
    port = kind_of(job.ref.resource).port
    return port_in(job.templates.get(type_, {}), port.name, port.number)


def _addresses(job: ParsedJob, kind: Kind, domain: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Addresses of all replicas that there may ever be, for kinds whose replicas all know each other."""
    if not kind.has_service_per_replica:
        return ()
    counts = tuple(
        (each, _most_replicas(job, each), replica_port(job, each)) for each in job.templates if each != "evaluator"
    )
    return _make_addresses(job.ref.name, job.ref.namespace, counts, job.chiefs, domain)


def _most_replicas(job: ParsedJob, type_: str) -> int:
    spec = job.spec
    if type_ in job.leading:
        return job.leading.count(type_)
    if type_ == spec.worker.type:
        return spec.maximum - len(job.leading)
    return next((each.count for each in spec.replicas if each.type == type_), 0)


@lru_cache(maxsize=256)
def _make_addresses(
    job: str, namespace: str, counts: tuple[tuple[str, int, int], ...], chiefs: int, domain: str
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = {
        type_: tuple(f"{host_of(job, namespace, type_, index, domain)}:{port}" for index in range(count))
        for type_, count, port in counts
    }
    if chiefs:
        port = next(each for type_, _, each in counts if type_ == "ps") + 1
        at_chiefs = tuple(f"{host_of(job, namespace, 'ps', index, domain)}:{port}" for index in range(chiefs))
        found["worker"] = at_chiefs + found.get("worker", ())
    return tuple(found.items())
