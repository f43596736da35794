"""What the kinds of Kubeflow's training operator share: labels of pods, single replicas, bounds by annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sterna.errors import UserError
from sterna.kinds.kind import ReplicaName
from sterna.kinds.labels import MAX_WORKERS, MIN_WORKERS
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.parsing.pod_template import ReplicaGroup

_LABELS = "training.kubeflow.org"


def check_single(groups: Mapping[str, ReplicaGroup], types: Iterable[str]) -> None:
    """Refuse several replicas of types of which a job has at most one."""
    for type_ in types:
        if type_ in groups and groups[type_].replicas > 1:
            raise UserError(f"{groups[type_].place}.replicas is {groups[type_].replicas}; there can be only one.")


def kubeflow_labels(job: ParsedJob, replica: ReplicaName) -> dict[str, str]:
    """Labels by which Kubeflow's tools find the pods of a job."""
    labels = {
        f"{_LABELS}/job-name": job.ref.name,
        f"{_LABELS}/replica-type": replica.type,
        f"{_LABELS}/replica-index": str(replica.index),
    }
    return {**labels, f"{_LABELS}/job-role": "master"} if replica.is_first else labels


def bounds_in_annotations(job: ParsedJob, fields: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    """A merge patch for a kind, or an object of it, whose own fields hold no bounds."""
    return {"metadata": {"annotations": {MIN_WORKERS: str(low), MAX_WORKERS: str(high)}}}
