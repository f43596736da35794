"""What the operator serves, and what it hears there: reports of progress, requests to move a pod, metrics.

Joins the HTTP service, which has threads of its own, to the loop: what arrives waits until the loop takes it in, and
what others look at is made under the backend's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from sterna.backends.kubernetes.apiserver import ApiServer
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.distribution import Distribution
from sterna.backends.kubernetes.entry import Entry
from sterna.backends.kubernetes.jobs import PodRow, Seat
from sterna.backends.kubernetes.migration_service import MigrationService, MigrationWishes, Sources
from sterna.backends.kubernetes.monitor.batch import MoveRequest
from sterna.backends.kubernetes.overload import Found, NodeInfo, relocated, replica_name
from sterna.backends.kubernetes.telemetry import Telemetry
from sterna.backends.kubernetes.tokens import Tokens
from sterna.backends.kubernetes.views import cluster_info, job_views, node_views
from sterna.control.controller import Recorder

Made = TypeVar("Made")


class Service:
    """The service of one operator."""

    def __init__(
        self,
        backend: KubernetesBackend,
        server: ApiServer,
        listen: str,
        is_leading: Callable[[], bool],
        leader: Callable[[], str],
        then: Recorder,
        monitors: Collection[str] = (),
    ) -> None:
        """`leader`: where another replica answers that leads, for whoever asks this one. `then` gets every round;
        `monitors`: service accounts that may report, as `NAMESPACE/NAME`; none: everybody may."""
        self._backend, self._world = backend, backend.world
        self.distribution = Distribution(then)
        """Where rounds are to be recorded."""
        self.telemetry = Telemetry(
            lambda: self._locked(lambda: job_views(self._world, backend.clock())),
            lambda: self._locked(lambda: node_views(self._world)),
            is_leading,
        )
        sources = Sources(
            lambda: self._world.progress.memory,
            lambda: self._locked(lambda: cluster_info(self._world)),
            self.telemetry.text,
            self.distribution.text,
            is_leading,
            leader,
        )
        tokens = Tokens(server, monitors) if monitors else None
        self._service = MigrationService(sources, tokens, backend.wake, listen)
        backend.errands.append(self._hear)
        backend.on_answer, backend.on_happened = self.telemetry.count_answer, self.telemetry.count

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

    def _hear(self, now: float) -> None:
        batches = self._service.heard.take()
        if batches:
            world = self._world
            news = world.progress.take(batches, world.pods.find, now)
            world.attention.has_news = world.attention.has_news or bool(news)
            for uid in {pod.uid for batch in batches for pod in batch.pods}:
                found = world.pods.find(uid)
                entry = world.entries.get(found[0].key) if found is not None else None
                if entry is not None:
                    world.attention.changed.add(entry.key)
                    self._backend.teller.progressed(entry, now)
        wishes = self._service.wishes.take()
        if wishes:
            self._move(wishes, cluster_info(self._world), now)

    def _move(self, wishes: list[MoveRequest], infos: Mapping[str, NodeInfo], now: float) -> None:
        """Requests are judged one after the other, and carried out at once: no round is needed for them (DRAGON-74)."""
        moves, _ = relocated(wishes, self._found, self._accepts, infos)
        for (job, pod, _), target in moves:
            entry = self._world.entries[job.key]
            name, memory = replica_name(pod), job.memory
            memory.replica_moves = {**memory.replica_moves, name: memory.replica_moves.get(name, 0) + 1}
            memory.moves, memory.moved_at, memory.moved_from = memory.moves + 1, now, pod.node
            self._world.reseat(entry, [_moved(seat, pod, target) for seat in entry.seats])
            self.distribution.note(now, entry.name, pod.node, target)

    def _found(self, request: MoveRequest) -> Found | None:
        for entry in self._world.entries.values():
            pod = next((each for each in entry.job.pods.values() if _is_meant(each, request)), None)
            if pod is not None and entry.wants_to_run and _has_seat(entry, pod):
                return Found(entry.job, pod, self._world.progress.steps_left(entry.key))
        return None

    def _accepts(self, found: Found, node: str) -> bool:
        table = self._world.accounts.table()
        entry = self._world.entries[found.job.key]
        row = self._world.accounts.row_of.get(node)
        return row is not None and bool(table.accepting(entry.shape)[row])


def address_of(ip: str, port: int) -> str:
    """`HOST:PORT`, with brackets where the host has colons itself (IPv6)."""
    host = ip or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_meant(pod: PodRow, request: MoveRequest) -> bool:
    namespace, _, name = pod.key.partition("/")
    return name == request.pod and request.namespace in ("", namespace)


def _has_seat(entry: Entry, pod: PodRow) -> bool:
    return any((seat.type, seat.index, seat.node) == (pod.type, pod.index, pod.node) for seat in entry.seats)


def _moved(seat: Seat, pod: PodRow, target: str) -> Seat:
    return seat._replace(node=target) if (seat.type, seat.index) == (pod.type, pod.index) else seat
