"""Which headless services a job needs: one for each replica that others call by name (DRAGON-6). Pure.

The names are those of the replicas, so that a replica that comes again elsewhere is found where its predecessor was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.kinds.parsed_job import CleanPods, ParsedJob


class ServiceRow(NamedTuple):
    """One that exists."""

    uid: str
    owner: str
    """The uid of its job; empty: nobody's."""


class ServiceSteps(NamedTuple):
    """What to do next, by type and index."""

    create: list[Key]
    delete: list[Key]


def is_called_by_name(parsed_job: ParsedJob) -> bool:
    """Whether its replicas talk to each other at all: one that is alone is not worth a write, except that everything
    which reads a TFJob expects its services. An MPI job's are its operator's, a plain pod has none."""
    if not parsed_job.ownership.creates_pods:
        return False
    spec = parsed_job.spec
    others = sum(each.count for each in spec.replicas if each is not spec.worker)
    return spec.kind == "TFJob" or spec.maximum + others > 1


def _is_called(parsed_job: ParsedJob, replica: ReplicaAssignment) -> bool:
    """Whether others are told of this replica: all of a TFJob are, because each is told of everybody; else the worker
    at which they meet, and those that are no workers."""
    spec = parsed_job.spec
    return spec.kind == "TFJob" or replica.index == 0 or replica.type != spec.worker.type


def service_steps(
    parsed_job: ParsedJob, replicas: Sequence[ReplicaAssignment], existing: Collection[Key]
) -> ServiceSteps:
    """Towards one service for each seat that others call: those of removed replicas go. While a job is moved or begins
    anew its seats stay, and so do its services."""
    called = (
        [replica for replica in replicas if _is_called(parsed_job, replica)] if is_called_by_name(parsed_job) else []
    )
    wanted = {(replica.type, replica.index) for replica in called}
    return ServiceSteps(sorted(wanted.difference(existing)), sorted(set(existing) - wanted))


def leftover_services(parsed_job: ParsedJob, existing: Collection[Key], staying: Collection[Key]) -> list[Key]:
    """Services of a job that has ended which are to be deleted, by its cleanPodPolicy; `staying` are the pods that
    are kept."""
    if parsed_job.clean_pods is CleanPods.NONE:
        return []
    return sorted(key for key in existing if parsed_job.clean_pods is CleanPods.ALL or key not in staying)
