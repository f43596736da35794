"""Facts about the past of a cluster that rules read from the snapshot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sterna.model.plan import ActionKind
from sterna.model.snapshot import NEVER
from sterna.model.speedup import Floats


class ClusterHistory:
    """Times of the last action and event, and the service of completed jobs."""

    def __init__(self, finished_service: Iterable[float] = ()) -> None:
        self._finished_service = list(finished_service)
        self.last_action = -NEVER
        """Time of the last start, stop or resize; moves and CPU shares do not count."""
        self.last_event = -NEVER
        """Time of the last arrival or end of a job."""

    def note_action(self, kind: ActionKind, now: float) -> None:
        if kind not in (ActionKind.MIGRATE, ActionKind.SET_CPU_SHARE):
            self.last_action = now

    def note_arrival(self, now: float) -> None:
        self.last_event = max(self.last_event, now)

    def note_end(self, now: float, service: float | None) -> None:
        """Note that a job ended; `service` in devices x seconds if it completed, None if it failed."""
        self.last_event = now
        if service is not None:
            self._finished_service.append(service)

    def finished_service(self) -> Floats:
        """Return the service of completed jobs, in ascending order."""
        return np.sort(np.array(self._finished_service, dtype=np.float64))
