"""The resources that the operator lists and watches: jobs of every registered kind, and all that uses capacity."""

from __future__ import annotations

from sterna.backends.kubernetes.api.objects import ConfigMap, Node, Plain, PriorityClass
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, NODES, PRIORITY_CLASSES, SERVICES, Followed
from sterna.backends.kubernetes.pods.move_record import MOVE_LABEL
from sterna.kinds.labels import JOB_LABEL
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.registry import custom_kinds
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS


def job_resources() -> tuple[Resource, ...]:
    """Return the custom resources of jobs."""
    return tuple(kind.resource for kind in custom_kinds())


def watched_resources(namespace: str = "") -> list[Followed]:
    """Return jobs of one namespace (empty: of all), and nodes and pods of all namespaces, because all use capacity."""
    return [
        Followed(NODES, Node),
        Followed(PODS, Pod),
        Followed(PRIORITY_CLASSES, PriorityClass, is_optional=True),
        Followed(SERVICES, Plain, namespace, labels=JOB_LABEL),
        *(Followed(resource, JobObject, namespace, is_optional=True) for resource in job_resources()),
        Followed(SHARE_PODS, JobObject, is_optional=True),
        Followed(CONFIG_MAPS, ConfigMap, namespace, labels=MOVE_LABEL),
    ]
