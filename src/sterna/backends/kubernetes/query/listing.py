"""Jobs of a cluster with their pods and events, collected from lists or from watch events. Pure.

The owner of a pod follows from the pod alone, so the order in which objects are added does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from sterna.backends.kubernetes.api.resources import EVENTS, Delta, DeltaKind, Followed
from sterna.backends.kubernetes.cache.watched_resources import job_resources
from sterna.backends.kubernetes.pods.pod_rows import KUBEFLOW, pod_row
from sterna.kinds.labels import JOB_LABEL
from sterna.kinds.objects import JobObject, Meta, Pod
from sterna.kinds.parse import is_managed
from sterna.kinds.pod import is_plain_job
from sterna.kinds.resource import PODS, Resource

_MPI_NAME = f"training.{KUBEFLOW}/job-name"
_MPI_PODS = f"training.{KUBEFLOW}/operator-name=mpi-operator"


class Series(msgspec.Struct, rename="camel"):
    """Repetitions of an event."""

    count: int = 0
    last_observed_time: str | None = None


class Regarding(msgspec.Struct, rename="camel"):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventObject(msgspec.Struct, rename="camel"):
    """An event of the API server."""

    metadata: Meta
    event_time: str | None = None
    series: Series | None = None
    deprecated_last_timestamp: str | None = None
    reason: str = ""
    note: str = ""
    regarding: Regarding = msgspec.field(default_factory=Regarding)


@dataclass
class ListedJob:
    """The object of a job, and its pods."""

    resource: Resource
    object: JobObject | Pod
    pods: list[Pod] = field(default_factory=list)

    @property
    def meta(self) -> Meta:
        return self.object.metadata


def job_lists(namespace: str, name: str = "") -> list[Followed]:
    """Return the lists that hold the jobs of a namespace (all if empty), or those of one name, and their pods."""
    fields = f"metadata.name={name}" if name else ""
    pods = [(f"{JOB_LABEL}={name}", ""), (f"{_MPI_PODS},{_MPI_NAME}={name}", ""), (JOB_LABEL, fields)]
    return [
        *(Followed(kind, JobObject, namespace, fields=fields, is_optional=True) for kind in job_resources()),
        *(Followed(PODS, Pod, namespace, *which) for which in (pods if name else [(JOB_LABEL, ""), (_MPI_PODS, "")])),
    ]


def event_list(namespace: str) -> Followed:
    return Followed(EVENTS, EventObject, namespace)


class JobListing:
    """Jobs, pods and events that were added and not deleted since."""

    def __init__(self) -> None:
        self._jobs: dict[str, ListedJob] = {}
        self._pods: dict[str, Pod] = {}
        self._events: dict[str, EventObject] = {}

    def apply(self, delta: Delta) -> None:
        if delta.object is None:
            return
        if delta.change is DeltaKind.SEEN:
            self.add(delta.resource, delta.object)
        else:
            uid = delta.object.metadata.uid
            for kept in (self._jobs, self._pods, self._events):
                kept.pop(uid, None)

    def add(self, resource: Resource, seen: JobObject | Pod | EventObject) -> None:
        uid = seen.metadata.uid
        if isinstance(seen, EventObject):
            self._events[uid] = seen
        elif isinstance(seen, JobObject):
            if is_managed(seen, resource):
                self._jobs[uid] = ListedJob(resource, seen)
        else:
            self._pods[uid] = seen
            if is_plain_job(seen):
                self._jobs[uid] = ListedJob(PODS, seen)

    def jobs(self) -> list[ListedJob]:
        """Return jobs in order of creation and name, each with its pods."""
        by_owner: dict[str, list[Pod]] = {}
        for pod in self._pods.values():
            row = pod_row(pod)
            if row.job:  # pods that another controller created refer to the job by name only
                by_owner.setdefault(row.owner_uid or row.job, []).append(pod)
        found = sorted(self._jobs.values(), key=lambda job: (job.meta.creation_timestamp, job.meta.key))
        for job in found:
            by_name = by_owner.get(job.meta.key, ()) if job.resource != PODS else ()
            job.pods = [*by_owner.get(job.meta.uid, ()), *by_name]
        return found

    def events(self) -> list[EventObject]:
        """Return the events about jobs, in order of their resource versions."""
        kinds = {kind.kind for kind in job_resources()}
        about_jobs = [
            event
            for event in self._events.values()
            if event.regarding.kind in kinds or event.regarding.uid in self._jobs
        ]
        return sorted(about_jobs, key=lambda event: event.metadata.version)


def match_jobs(jobs: Sequence[ListedJob], text: str) -> list[ListedJob]:
    """Return the jobs that `name`, `namespace/name` or `kind/name` may mean."""
    *qualifiers, name = text.split("/")
    return [job for job in jobs if job.meta.name == name and all(_matches(job, qualifier) for qualifier in qualifiers)]


def full_name(job: ListedJob) -> str:
    """Return an unambiguous name."""
    return f"{job.meta.namespace}/{job.resource.kind.lower()}/{job.meta.name}"


def _matches(job: ListedJob, qualifier: str) -> bool:
    return qualifier == job.meta.namespace or qualifier.lower() in (job.resource.kind.lower(), job.resource.plural)
