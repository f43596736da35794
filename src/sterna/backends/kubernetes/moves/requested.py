"""Moves that monitors ask for (`/migrate`): judged one after the other, carried out at once, and explained.

No round is needed for them and no rule is asked (DRAGON-74). Which node is the best one is said by `overload`; which
come into question is said here: those with room for the worker when all that was decided is so, beside what is kept
free for pods that go before training (DRAGON-59, 71). Why a request came to nothing is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.backends.kubernetes.api.job import PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.monitor_protocol import MoveRequest
from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.reservations import reservations, room_beside
from sterna.backends.kubernetes.cache.views import cluster_info
from sterna.backends.kubernetes.lifecycle.overload import Dropped, Found, Relocation, relocated, replica_name
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import Assignment
from sterna.model.reason import Code, Reason

_MOST_TOLD = 4096
"""So many pods are remembered of which it was told why they stay."""

Note = Callable[[float, str, str, str], None]
"""Told of each move: when, which job, from where, to where."""
Say = Callable[[str], None]


class MonitorMoves:
    """Carries out what monitors ask for. The caller holds the backend's lock."""

    def __init__(self, backend: KubernetesBackend, note: Note, say: Say) -> None:
        self._backend, self._state, self._note, self._say = backend, backend.state, note, say
        self._told: dict[str, str] = {}

    def carry_out(self, wishes: Sequence[MoveRequest], now: float) -> None:
        room = room_beside(self._state, reservations(self._state), now)
        outcomes = relocated(wishes, self._found, lambda found: self._hosts(found, room), cluster_info(self._state))
        for outcome in outcomes:  # each is judged when the one before has been carried out
            if isinstance(outcome, Dropped):
                self._tell(outcome)
            else:
                self._move(outcome, room, now)

    def _found(self, request: MoveRequest) -> Found | None:
        for entry in self._state.entries.values():
            pod = next((each for each in entry.job.pods.values() if _is_meant(each, request)), None)
            if pod is not None and entry.wants_to_run and (replica := _replica_of(entry, pod)) is not None:
                steps_left = self._state.progress.steps_left(entry.key)
                return Found(entry.job, pod, steps_left, is_leaving=replica.node != pod.node)
        return None

    def _hosts(self, found: Found, room: FreeCapacity) -> set[str]:
        slots = room.slots(self._state.entries[found.job.key].shape)
        return {self._state.capacity.names[row] for row in (slots > 0).nonzero()[0].tolist()}

    def _move(self, move: Relocation, room: FreeCapacity, now: float) -> None:
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
            there if (replica.type, replica.index) == (pod.type, pod.index) else replica for replica in entry.replicas
        ]
        self._state.reassign(entry, replicas)
        self._state.work_queue.request_round()  # others may use what it leaves
        self._backend.explain(entry, Reason(-1, entry.name, Code.MOVED, 1), now)
        self._note(now, entry.name, pod.node, move.target)

    def _tell(self, dropped: Dropped) -> None:
        """A monitor asks for the same every few seconds."""
        pod = f"{dropped.request.namespace}/{dropped.request.pod}"
        if self._told.get(pod) == dropped.why:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[pod] = dropped.why
        self._say(f"A monitor's request to move a pod came to nothing: {dropped.why}")


def _is_meant(pod: PodRow, request: MoveRequest) -> bool:
    namespace, _, name = pod.key.partition("/")
    return name == request.pod and request.namespace in ("", namespace)


def _replica_of(entry: JobEntry, pod: PodRow) -> ReplicaAssignment | None:
    return next((replica for replica in entry.replicas if (replica.type, replica.index) == (pod.type, pod.index)), None)
