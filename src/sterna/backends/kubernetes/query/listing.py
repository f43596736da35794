"""What a person sees of a cluster: the objects that jobs are, each with its pods and what happened to it.

Filled from lists, for one look, or from news, for a look that lasts. Whose a pod is follows from the pod alone, so the
order in which things are seen does not matter. Nothing here asks a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from sterna.backends.kubernetes.api.resources import EVENTS, Change, Delta, Followed
from sterna.backends.kubernetes.cache.watched_resources import JOB_KINDS
from sterna.backends.kubernetes.pods.pod_rows import KUBEFLOW, pod_row
from sterna.kinds.labels import JOB_LABEL
from sterna.kinds.objects import JobObject, Meta, Pod
from sterna.kinds.pod import is_plain_job
from sterna.kinds.reading import is_ours
from sterna.kinds.resource import PODS, Resource

KINDS = (*JOB_KINDS, PODS)
"""What a job may be."""
_MPI_NAME = f"training.{KUBEFLOW}/job-name"
_MPI_PODS = f"training.{KUBEFLOW}/operator-name=mpi-operator"


class Series(msgspec.Struct, rename="camel"):
    """How often something happened again."""

    count: int = 0
    last_observed_time: str | None = None


class Regarding(msgspec.Struct, rename="camel"):
    """What an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventObject(msgspec.Struct, rename="camel"):
    """An event as the server keeps it."""

    metadata: Meta
    event_time: str | None = None
    series: Series | None = None
    deprecated_last_timestamp: str | None = None
    reason: str = ""
    note: str = ""
    regarding: Regarding = msgspec.field(default_factory=Regarding)


@dataclass
class SeenJob:
    """One job."""

    resource: Resource
    object: JobObject | Pod
    pods: list[Pod] = field(default_factory=list)

    @property
    def meta(self) -> Meta:
        return self.object.metadata


def followed_jobs(namespace: str, name: str = "") -> list[Followed]:
    """What has to be seen of the jobs of a namespace (all if empty), or of those of one name, with their pods."""
    fields = f"metadata.name={name}" if name else ""
    pods = [(f"{JOB_LABEL}={name}", ""), (f"{_MPI_PODS},{_MPI_NAME}={name}", ""), (JOB_LABEL, fields)]
    return [
        *(Followed(kind, JobObject, namespace, fields=fields, is_optional=True) for kind in JOB_KINDS),
        *(Followed(PODS, Pod, namespace, *which) for which in (pods if name else [(JOB_LABEL, ""), (_MPI_PODS, "")])),
    ]


def followed_events(namespace: str) -> Followed:
    return Followed(EVENTS, EventObject, namespace)


class Sightings:
    """Everything that was seen and is not gone."""

    def __init__(self) -> None:
        self._jobs: dict[str, SeenJob] = {}
        self._pods: dict[str, Pod] = {}
        self._events: dict[str, EventObject] = {}

    def take(self, delta: Delta) -> None:
        if delta.object is None:
            return
        if delta.change is Change.SEEN:
            self.see(delta.resource, delta.object)
        else:
            uid = delta.object.metadata.uid
            for kept in (self._jobs, self._pods, self._events):
                kept.pop(uid, None)

    def see(self, resource: Resource, seen: JobObject | Pod | EventObject) -> None:
        uid = seen.metadata.uid
        if isinstance(seen, EventObject):
            self._events[uid] = seen
        elif isinstance(seen, JobObject):
            if is_ours(seen, resource):
                self._jobs[uid] = SeenJob(resource, seen)
        else:
            self._pods[uid] = seen
            if is_plain_job(seen):
                self._jobs[uid] = SeenJob(PODS, seen)

    def jobs(self) -> list[SeenJob]:
        """In order of their submission and names, each with its pods."""
        by_owner: dict[str, list[Pod]] = {}
        for pod in self._pods.values():
            row = pod_row(pod)
            if row.job:  # who made a pod for somebody else's job knows the job by its name only
                by_owner.setdefault(row.owner_uid or row.job, []).append(pod)
        found = sorted(self._jobs.values(), key=lambda job: (job.meta.creation_timestamp, job.meta.key))
        for job in found:
            by_name = by_owner.get(job.meta.key, ()) if job.resource != PODS else ()
            job.pods = [*by_owner.get(job.meta.uid, ()), *by_name]
        return found

    def events(self) -> list[EventObject]:
        """Those about jobs, in the order in which they were told."""
        kinds = {kind.kind for kind in JOB_KINDS}
        about_jobs = [
            event
            for event in self._events.values()
            if event.regarding.kind in kinds or event.regarding.uid in self._jobs
        ]
        return sorted(about_jobs, key=lambda event: event.metadata.version)


def named(jobs: Sequence[SeenJob], text: str) -> list[SeenJob]:
    """The jobs that a person may mean by `name`, `namespace/name` or `kind/name`."""
    *marks, name = text.split("/")
    return [job for job in jobs if job.meta.name == name and all(_is_marked(job, mark) for mark in marks)]


def full_name(job: SeenJob) -> str:
    """One that means this job and no other."""
    return f"{job.meta.namespace}/{job.resource.kind.lower()}/{job.meta.name}"


def _is_marked(job: SeenJob, mark: str) -> bool:
    return mark == job.meta.namespace or mark.lower() in (job.resource.kind.lower(), job.resource.plural)
