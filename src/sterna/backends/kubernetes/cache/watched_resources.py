"""What the operator follows: its jobs, and everything that takes room or gives it."""

from __future__ import annotations

from sterna.backends.kubernetes.api.objects import Node, Plain, PriorityClass, Record
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, NODES, PRIORITY_CLASSES, SERVICES, Followed
from sterna.backends.kubernetes.pods.move_record import MOVE_LABEL
from sterna.kinds.labels import JOB_LABEL
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.resource import MPI_JOBS, PODS, PYTORCH_JOBS, SHARE_PODS, TF_JOBS, TRAINING_JOBS

JOB_KINDS = (TRAINING_JOBS, TF_JOBS, PYTORCH_JOBS, MPI_JOBS)


def followed_in(namespace: str = "") -> list[Followed]:
    """Jobs of a namespace, or of all; nodes and pods are everybody's, because everybody's take room."""
    return [
        Followed(NODES, Node),
        Followed(PODS, Pod),
        Followed(PRIORITY_CLASSES, PriorityClass, is_optional=True),
        Followed(SERVICES, Plain, namespace, labels=JOB_LABEL),
        *(Followed(kind, JobObject, namespace, is_optional=True) for kind in JOB_KINDS),
        Followed(SHARE_PODS, JobObject, is_optional=True),
        Followed(CONFIG_MAPS, Record, namespace, labels=MOVE_LABEL),
    ]
