"""`RequestProcessor`: connects the operator's HTTP endpoints to its round loop.

HTTP threads put requests into queues and read data under the backend's lock; the loop processes the queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from sterna.backends.kubernetes.api.monitor_protocol import AUDIENCE
from sterna.backends.kubernetes.api.resources import ApiServer
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.views import cluster_info, job_views, node_views
from sterna.backends.kubernetes.moves.requested import MonitorMoves
from sterna.backends.kubernetes.server.endpoints import EndpointSources, OperatorEndpoints, OperatorReplica
from sterna.backends.kubernetes.server.metrics import OperatorMetrics
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.control.specon_csv import SpeconCsvBuffer

ResultValue = TypeVar("ResultValue")


class RequestProcessor:
    """Endpoints, metrics and move requests of one operator."""

    def __init__(
        self, backend: KubernetesBackend, server: ApiServer, replica: OperatorReplica, monitors: Collection[str] = ()
    ) -> None:
        """`monitors`: service accounts that may report, as `NAMESPACE/NAME`; empty: any client may."""
        self._backend, self._state = backend, backend.state
        self.specon_csv = SpeconCsvBuffer()
        """An observer of rounds."""
        self.metrics = OperatorMetrics(
            lambda: self._read(lambda: job_views(self._state, backend.clock())),
            lambda: self._read(lambda: node_views(self._state)),
            replica.is_leading,
        )
        sources = EndpointSources(
            lambda: self._state.progress.memory,
            lambda: self._read(lambda: cluster_info(self._state)),
            self.metrics.render,
            self.specon_csv.text,
            replica,
        )
        reviewer = TokenReviewer(server, AUDIENCE) if monitors else None
        self._moves = MonitorMoves(backend, self.specon_csv.note_move)
        self.endpoints = OperatorEndpoints(sources, reviewer, backend.wake, monitors)

    def _read(self, read: Callable[[], ResultValue]) -> ResultValue:
        with self._backend.lock:
            return read()

    def process_requests(self, now: float) -> None:
        """Process progress reports and move requests that arrived since the last call. Called by the loop."""
        batches = self.endpoints.batches.take()
        if batches:
            self._backend.take_reports(batches, now)
        requests = self.endpoints.move_requests.take()
        if requests:
            self._moves.apply(requests, now)
