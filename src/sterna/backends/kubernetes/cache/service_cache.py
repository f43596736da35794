"""`ServiceCache`: headless services by name, linked to the replicas of jobs."""

from __future__ import annotations

from collections.abc import Collection

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.cache.job_index import JobIndex
from sterna.backends.kubernetes.cache.object_parser import replica_in
from sterna.backends.kubernetes.cache.work_queue import WorkQueue
from sterna.backends.kubernetes.lifecycle.services import ServiceRow


class ServiceCache:
    """Cache of all services that Sterna created."""

    def __init__(self, jobs: JobIndex, work_queue: WorkQueue) -> None:
        self._jobs, self._work_queue = jobs, work_queue
        self._rows: dict[str, ServiceRow] = {}
        self._replicas: dict[str, set[Key]] = {}
        """Replicas with a service by job uid; a service may be seen before its job."""

    def get(self, key: str) -> ServiceRow | None:
        """Return the service of this `namespace/name`."""
        return self._rows.get(key)

    def replicas_of(self, uid: str) -> Collection[Key]:
        """Return the replicas of a job that have a service."""
        return self._replicas.get(uid, ())

    def update(self, service: Plain, is_there: bool) -> None:
        """Apply a watch delta."""
        meta = service.metadata
        owner = next((each.uid for each in meta.owner_references if each.controller), "")
        known = self._rows.pop(meta.key, None)
        if is_there:
            self._rows[meta.key] = ServiceRow(meta.uid, owner)
        else:
            owner = known.owner if known is not None else owner
            self._work_queue.wake_blocked()
        if known is not None and known.owner != owner:
            self._set(known.owner, replica_in(meta), False)
        self._set(owner, replica_in(meta), is_there)

    def _set(self, owner: str, replica: Key | None, is_there: bool) -> None:
        if not owner or replica is None:
            return
        replicas, entry = self._replicas.setdefault(owner, set()), self._jobs.by_uid.get(owner)
        if is_there:
            replicas.add(replica)
        else:
            replicas.discard(replica)
        if not replicas:
            del self._replicas[owner]
        if entry is not None:
            if is_there:
                entry.services[replica] = True
            else:
                entry.services.pop(replica, None)
            self._work_queue.enqueue(entry)
