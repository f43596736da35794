"""`ClusterWatch`: jobs, pods and events of a cluster, kept current by watches."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

from sterna.backends.kubernetes.api.resources import EVENTS, ApiServer, Delta, DeltaKind, Inbox
from sterna.backends.kubernetes.cache.watched_resources import job_resources
from sterna.backends.kubernetes.query.listing import JobListing, event_list, job_lists
from sterna.errors import Retry, UserError
from sterna.kinds.resource import Resource

_LONGEST_WAIT_SECONDS = 1.0
_SYNC_SECONDS = 60.0


class ClusterWatch:
    """Jobs, their pods and events of a namespace (all if empty), kept current."""

    def __init__(self, server: ApiServer, inbox: Inbox, namespace: str) -> None:
        followed = [*job_lists(namespace), event_list(namespace)]
        self.listing = JobListing()
        self._server, self._inbox = server, inbox
        self._unsynced = Counter(each.resource for each in followed)
        self._absent: dict[Resource, str] = {}
        server.follow(followed, inbox)

    def wait_for_changes(self, until: float = math.inf, clock: Callable[[], float] = time.monotonic) -> Iterator[bool]:
        """Once everything was listed, yield at least once a second until `until`: True if something changed since."""
        sync_ends = clock() + _SYNC_SECONDS
        is_first = True
        while (left := until - clock()) > 0:
            self._inbox.wait(min(left, _LONGEST_WAIT_SECONDS))
            has_changed = self._drain_inbox()
            if +self._unsynced:
                self._check(clock() >= sync_ends)
                continue
            yield has_changed or is_first
            is_first = False

    def _drain_inbox(self) -> bool:
        has_changed = False
        for item in self._inbox.take():
            if not isinstance(item, Delta):
                continue
            if item.object is None:
                self._mark_synced(item)
            else:
                self.listing.apply(item)
                has_changed = True
        return has_changed

    def _mark_synced(self, delta: Delta) -> None:
        self._unsynced[delta.resource] -= 1
        if delta.change is DeltaKind.ABSENT:
            self._absent[delta.resource] = delta.why
        else:
            self._absent.pop(delta.resource, None)
        if all(kind in self._absent for kind in job_resources()):
            raise UserError(self._absent[job_resources()[0]])
        lacking = [why for resource, why in self._absent.items() if resource not in (*job_resources(), EVENTS)]
        if lacking:
            raise UserError(lacking[0])

    def _check(self, is_late: bool) -> None:
        failure = getattr(self._server, "last_error", "")
        if failure or is_late:
            raise Retry(failure or f"The cluster did not tell of everything within {_SYNC_SECONDS:g} s; try again.")
