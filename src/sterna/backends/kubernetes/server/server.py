"""What the operator serves, and what it hears there: reports of progress, requests to move a pod, metrics.

Joins the HTTP service, which has threads of its own, to the loop: what arrives waits until the loop takes it in, and
what others look at is made under the backend's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TypeVar

from sterna.backends.kubernetes.api.resources import ApiServer
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.views import cluster_info, job_views, node_views
from sterna.backends.kubernetes.moves.requested import MonitorMoves
from sterna.backends.kubernetes.server.metrics import Telemetry
from sterna.backends.kubernetes.server.routes import MigrationService, MigrationWishes, ReplicaState, Sources
from sterna.backends.kubernetes.server.token_review import Tokens
from sterna.control.specon_csv import SpeconCsvBuffer

Made = TypeVar("Made")


class Service:
    """The service of one operator."""

    def __init__(
        self,
        backend: KubernetesBackend,
        server: ApiServer,
        listen: str,
        replica: ReplicaState,
        monitors: Collection[str] = (),
    ) -> None:
        """`monitors`: service accounts that may report, as `NAMESPACE/NAME`; empty: any client may."""
        self._backend, self._world = backend, backend.state
        self.specon_csv = SpeconCsvBuffer()
        """An observer of rounds."""
        self.telemetry = Telemetry(
            lambda: self._locked(lambda: job_views(self._world, backend.clock())),
            lambda: self._locked(lambda: node_views(self._world)),
            replica.is_leading,
        )
        sources = Sources(
            lambda: self._world.progress.memory,
            lambda: self._locked(lambda: cluster_info(self._world)),
            self.telemetry.text,
            self.specon_csv.text,
            replica,
        )
        tokens = Tokens(server, monitors) if monitors else None
        self._relocations = MonitorMoves(backend, self.specon_csv.note_move)
        self._service = MigrationService(sources, tokens, backend.wake, listen)

    @property
    def address(self) -> str:
        """Where others reach it: the pod's own address, where there is one."""
        return address_of(os.environ.get("POD_IP", ""), self._service.port)

    @property
    def wishes(self) -> MigrationWishes:
        """Requests to move a pod, for the loop."""
        return self._service.wishes

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()

    def _locked(self, make: Callable[[], Made]) -> Made:
        with self._backend.lock:
            return make()

    # What the loop does.

    def process_requests(self, now: float) -> None:
        """Process progress reports and move requests that arrived since the last pass."""
        batches = self._service.heard.take()
        if batches:
            state = self._world
            news = state.progress.take(batches, state.pods.find, now)
            if news:
                state.work_queue.request_round()
            for uid in {pod.uid for batch in batches for pod in batch.pods}:
                found = state.pods.find(uid)
                entry = state.entries.get(found[0].key) if found is not None else None
                if entry is not None:
                    state.work_queue.mark_row_stale(entry)
                    self._backend.status_writer.on_progress(entry, now)
        wishes = self._service.wishes.take()
        if wishes:
            self._relocations.apply(wishes, now)


def address_of(ip: str, port: int) -> str:
    """`HOST:PORT`, with brackets where the host has colons itself (IPv6)."""
    host = ip or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
