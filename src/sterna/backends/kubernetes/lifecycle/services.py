"""Headless services of a job: one for each replica that others reach by name. Pure.

A service has the name of its replica, so a replica created again on another node keeps its address.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.kinds.parsed_job import CleanPods, ParsedJob
from sterna.kinds.registry import kind_of


class ServiceRow(NamedTuple):
    """An existing service."""

    uid: str
    owner: str
    """Uid of the job that owns it; empty if none does."""


class ServiceSteps(NamedTuple):
    """Services to create and delete, by type and ordinal."""

    create: list[Key]
    delete: list[Key]


def is_called_by_name(parsed_job: ParsedJob) -> bool:
    """Return True if the replicas of a job reach each other by name.

    A single replica needs no service, except of a TFJob, whose readers expect one. MPIJobs get theirs from the MPI
    operator; plain pods have none.
    """
    if not parsed_job.ownership.creates_pods:
        return False
    spec = parsed_job.spec
    others = sum(each.count for each in spec.replicas if each is not spec.worker)
    return kind_of(parsed_job.ref.resource).has_service_per_replica or spec.maximum + others > 1


def _is_called(parsed_job: ParsedJob, replica: ReplicaAssignment) -> bool:
    """Return True for every replica of a TFJob (`TF_CONFIG` lists them all), else for worker 0 and non-workers."""
    spec = parsed_job.spec
    is_called = kind_of(parsed_job.ref.resource).has_service_per_replica
    return is_called or replica.ordinal == 0 or replica.type != spec.worker.type


def service_steps(
    parsed_job: ParsedJob, replicas: Sequence[ReplicaAssignment], existing: Collection[Key]
) -> ServiceSteps:
    """Return the steps towards one service per reachable replica. Services stay while a job moves or restarts."""
    called = (
        [replica for replica in replicas if _is_called(parsed_job, replica)] if is_called_by_name(parsed_job) else []
    )
    wanted = {(replica.type, replica.ordinal) for replica in called}
    return ServiceSteps(sorted(wanted.difference(existing)), sorted(set(existing) - wanted))


def services_to_delete(parsed_job: ParsedJob, existing: Collection[Key], staying: Collection[Key]) -> list[Key]:
    """Return the services of an ended job to delete, by its cleanPodPolicy; `staying` are replicas with kept pods."""
    if parsed_job.clean_pods is CleanPods.NONE:
        return []
    return sorted(key for key in existing if parsed_job.clean_pods is CleanPods.ALL or key not in staying)
