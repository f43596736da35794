"""Moves that monitors ask for (`/migrate`): judged one after the other, carried out at once, and explained.

No round is needed for them and no rule is asked (DRAGON-74). Which node is the best one is said by `overload`; which
come into question is said here: those with room for the worker when all that was decided is so, beside what is kept
free for pods that go before training (DRAGON-59, 71). A rejected request is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.backends.kubernetes.api.job import PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.monitor_protocol import MoveRequest
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.reservations import reservations, room_beside
from sterna.backends.kubernetes.cache.views import cluster_info
from sterna.backends.kubernetes.lifecycle.overload import (
    AcceptedMove,
    Found,
    RejectedMove,
    evaluate_requests,
    replica_name,
)
from sterna.engine.placement.free_capacity import Room
from sterna.model.cluster import Assignment
from sterna.model.reason import Code, Reason

_log = logging.getLogger(__name__)


Note = Callable[[float, str, str, str], None]
"""Told of each move: when, which job, from where, to where."""


class MonitorMoves:
    """Carries out what monitors ask for. The caller holds the backend's lock."""

    def __init__(self, backend: KubernetesBackend, note: Note) -> None:
        self._backend, self._state, self._note = backend, backend.state, note

    def carry_out(self, wishes: Sequence[MoveRequest], now: float) -> None:
        room = room_beside(self._state, reservations(self._state), now)
        outcomes = evaluate_requests(
            wishes, self._found, lambda found: self._hosts(found, room), cluster_info(self._state)
        )
        for outcome in outcomes:  # each is judged when the one before has been carried out
            if isinstance(outcome, RejectedMove):
                extra = {"job": outcome.request.pod, "node": outcome.request.node}
                _log.warning("A monitor's request to move a pod was rejected: %s", outcome.why, extra=extra)
            else:
                self._move(outcome, room, now)

    def _found(self, request: MoveRequest) -> Found | None:
        for entry in self._state.entries.values():
            pod = next((each for each in entry.job.pods.values() if _is_meant(each, request)), None)
            if pod is not None and entry.wants_to_run and (replica := _replica_of(entry, pod)) is not None:
                steps_left = self._state.progress.steps_left(entry.key)
                return Found(entry.job, pod, steps_left, is_leaving=replica.node != pod.node)
        return None

    def _hosts(self, found: Found, room: Room) -> set[str]:
        slots = room.slots(self._state.entries[found.job.key].shape)
        return {self._state.capacity.names[row] for row in (slots > 0).nonzero()[0].tolist()}

    def _move(self, move: AcceptedMove, room: Room, now: float) -> None:
        job, pod = move.found.job, move.found.pod
        entry, capacity = self._state.entries[job.key], self._state.capacity
        held = (gpu_number(pod.gpu_id),) if pod.gpu_id else ()
        room.give(entry.shape, Assignment(((capacity.row_of[pod.node], 1),), (), held))
        slots = room.take(entry.shape, capacity.row_of[move.target], 1)
        gpu = capacity.parts.name_of(move.target, slots[0]) if slots else ""
        name, memory = replica_name(pod), job.memory
        memory.replica_moves = {**memory.replica_moves, name: memory.replica_moves.get(name, 0) + 1}
        memory.moves, memory.moved_at, memory.moved_from = memory.moves + 1, now, pod.node
        there = ReplicaAssignment(pod.type, pod.index, move.target, gpu)
        replicas = [
            there if (replica.type, replica.ordinal) == (pod.type, pod.index) else replica for replica in entry.replicas
        ]
        self._state.reassign(entry, replicas)
        self._state.work_queue.request_round()  # others may use what it leaves
        self._backend.explain(entry, Reason(-1, entry.name, Code.MOVED, 1), now)
        self._note(now, entry.name, pod.node, move.target)


def _is_meant(pod: PodRow, request: MoveRequest) -> bool:
    namespace, _, name = pod.key.partition("/")
    return name == request.pod and request.namespace in ("", namespace)


def _replica_of(entry: JobEntry, pod: PodRow) -> ReplicaAssignment | None:
    return next(
        (replica for replica in entry.replicas if (replica.type, replica.ordinal) == (pod.type, pod.index)), None
    )
