"""The way in: which objects are ours, and what each asks for.

A sentence that `read` raises is for the object's user: it becomes the message of a condition, with the reason that
people of that kind know (`invalid_reason`). Nothing but `UserError` is ever raised, whatever an object holds.
"""

from __future__ import annotations

from sterna.errors import Bug, UserError
from sterna.kinds import mpi_job, pod, pytorch_job, tf_job, training_job
from sterna.kinds.context import KubeShare, ParseContext
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.run_policy import SpecFields, is_managed_by_others
from sterna.kinds.pod import is_plain_job
from sterna.kinds.resource import MPI_JOBS, PODS, PYTORCH_JOBS, TF_JOBS, TRAINING_JOBS, Resource

_ANY = ParseContext()


def read(object_: JobObject | Pod, resource: Resource, context: ParseContext = _ANY) -> ParsedJob:
    """What an object asks for."""
    if isinstance(object_, Pod):
        return pod.read(object_)
    if resource.plural == TRAINING_JOBS.plural:
        return training_job.read(object_, resource, context)
    if resource.plural == TF_JOBS.plural:
        return tf_job.read(object_, resource, context)
    if resource.plural == PYTORCH_JOBS.plural:
        return pytorch_job.read(object_, resource)
    if resource.plural == MPI_JOBS.plural:
        return mpi_job.read(object_, resource)
    raise Bug(f"no job is made of {resource.plural}")


def is_ours(object_: JobObject | Pod, resource: Resource, context: ParseContext = _ANY) -> bool:
    """Whether we look after it, or somebody else does. One that cannot be read is ours: its user has to be told."""
    if context.kubeshare is KubeShare.ONLY and resource.plural != TF_JOBS.plural:
        return False
    if isinstance(object_, Pod):
        return is_plain_job(object_)
    try:
        if resource.plural == MPI_JOBS.plural:
            return mpi_job.is_taken(object_)
        if resource.plural == TF_JOBS.plural:
            return tf_job.is_taken(object_, context)
        if resource.plural == PYTORCH_JOBS.plural:
            return not is_managed_by_others(decoded(object_.spec, SpecFields, "spec"))
    except UserError:
        return resource.plural != MPI_JOBS.plural  # its own operator says what is wrong with it
    return resource.plural == TRAINING_JOBS.plural


def invalid_reason(resource: Resource) -> str:
    """What a condition calls an object that cannot be run (DRAGON-2)."""
    return "Invalid" if resource.plural in (TRAINING_JOBS.plural, PODS.plural) else f"Invalid{resource.kind}Spec"
