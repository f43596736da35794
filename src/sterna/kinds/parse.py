"""Parse the objects of any kind: which of them Sterna manages, and which jobs they describe.

A sentence that `parse_job` raises is for the object's user: it becomes the message of a condition with the kind's own
reason (`invalid_reason`). Nothing but `UserError` is raised, whatever an object holds.
"""

from __future__ import annotations

from sterna.errors import Bug, UserError
from sterna.kinds.context import ON_A_CLUSTER, KubeShare, ParseContext
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.registry import kind_of
from sterna.kinds.resource import Resource


def parse_job(object_: JobObject | Pod, resource: Resource, context: ParseContext = ON_A_CLUSTER) -> ParsedJob:
    kind = kind_of(resource)
    if kind.parse is None:
        raise Bug(f"no job is made of {resource.plural}")
    return kind.parse(object_, context)


def is_managed(object_: JobObject | Pod, resource: Resource, context: ParseContext = ON_A_CLUSTER) -> bool:
    """False for objects of which another controller takes care. Invalid ones are managed: their user needs a reason."""
    kind = kind_of(resource)
    if context.kubeshare is KubeShare.ONLY and not kind.takes_kubeshare_mark:
        return False
    try:
        return kind.is_managed(object_, context)
    except UserError:
        return kind.is_managed_if_invalid


def invalid_reason(resource: Resource) -> str:
    """Reason of the condition of an object that cannot be run."""
    return kind_of(resource).condition_of_invalid
