"""Moves that monitors request (`/migrate`): evaluated in order, applied at once, and explained, without a round.

`overload` chooses the best node among the candidates given here: nodes with capacity for the worker in the desired
state, beside what is reserved for serving pods. Rejected requests are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.backends.kubernetes.api.job import PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.reservations import free_beside, reservations
from sterna.backends.kubernetes.cache.views import cluster_info
from sterna.backends.kubernetes.lifecycle.overload import (
    AcceptedMove,
    Found,
    RejectedMove,
    evaluate_requests,
    replica_name,
)
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import Assignment
from sterna.model.reason import Code, Reason

_log = logging.getLogger(__name__)


OnMove = Callable[[float, str, str, str], None]
"""Called for each move with time, job, source node and target node."""


class MonitorMoves:
    """Applies move requests. The caller holds the backend's lock."""

    def __init__(self, backend: KubernetesBackend, on_move: OnMove) -> None:
        self._backend, self._state, self._on_move = backend, backend.state, on_move

    def apply(self, requests: Sequence[PodMoveRequest], now: float) -> None:
        room = free_beside(self._state, reservations(self._state), now)
        outcomes = evaluate_requests(
            requests, self._find, lambda found: self._hosts(found, room), cluster_info(self._state)
        )
        for outcome in outcomes:  # lazy: each is evaluated after the previous one was applied
            if isinstance(outcome, RejectedMove):
                extra = {"job": outcome.request.pod, "node": outcome.request.node}
                _log.warning("A monitor's request to move a pod was rejected: %s", outcome.why, extra=extra)
            else:
                self._move(outcome, room, now)

    def _find(self, request: PodMoveRequest) -> Found | None:
        for entry in self._state.entries.values():
            pod = next((each for each in entry.job.pods.values() if _matches(each, request)), None)
            if pod is not None and entry.wants_to_run and (replica := _replica_of(entry, pod)) is not None:
                steps_left = self._state.progress.steps_left(entry.key)
                return Found(entry.job, pod, steps_left, is_leaving=replica.node != pod.node)
        return None

    def _hosts(self, found: Found, room: FreeCapacity) -> set[str]:
        slots = room.slots(self._state.entries[found.job.key].shape)
        return {self._state.capacity.names[row] for row in (slots > 0).nonzero()[0].tolist()}

    def _move(self, move: AcceptedMove, room: FreeCapacity, now: float) -> None:
        job, pod = move.found.job, move.found.pod
        entry, capacity = self._state.entries[job.key], self._state.capacity
        held = (gpu_number(pod.gpu_id),) if pod.gpu_id else ()
        room.release(entry.shape, Assignment(((capacity.row_of[pod.node], 1),), (), held))
        slots = room.take(entry.shape, capacity.row_of[move.target], 1)
        gpu = capacity.gpu_fractions.name_of(move.target, slots[0]) if slots else ""
        name, persisted = replica_name(pod), job.persisted
        persisted.replica_moves = {**persisted.replica_moves, name: persisted.replica_moves.get(name, 0) + 1}
        persisted.moves, persisted.moved_at, persisted.moved_from = persisted.moves + 1, now, pod.node
        there = ReplicaAssignment(pod.type, pod.index, move.target, gpu)
        replicas = [
            there if (replica.type, replica.ordinal) == (pod.type, pod.index) else replica for replica in entry.replicas
        ]
        self._state.reassign(entry, replicas)
        self._state.work_queue.request_round()  # the capacity it leaves may fit another job
        self._backend.explain(entry, Reason(-1, entry.name, Code.MOVED, 1), now)
        self._on_move(now, entry.name, pod.node, move.target)


def _matches(pod: PodRow, request: PodMoveRequest) -> bool:
    namespace, _, name = pod.key.partition("/")
    return name == request.pod and request.namespace in ("", namespace)


def _replica_of(entry: JobEntry, pod: PodRow) -> ReplicaAssignment | None:
    return next(
        (replica for replica in entry.replicas if (replica.type, replica.ordinal) == (pod.type, pod.index)), None
    )
