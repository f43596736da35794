"""Outgoing writes: order, limit in flight, retry and replacement. No I/O; time and random numbers are arguments.

The API server is the bottleneck, so writes in flight are bounded, urgent ones go first, and part of the limit is
reserved for results that users wait for. Writes with the same `slot` go out one at a time; of those that wait only the
latest is sent.

A write is retried only if it certainly had no effect. If the effect is unknown, the `WriteResult` has status 0 and
the caller reads the object first: repeating it here could delete a successor or recreate what was just deleted.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from enum import Enum

from sterna.backends.kubernetes.api.resources import Urgency, Write

MAX_IN_FLIGHT = 32
RESERVED_IN_FLIGHT = 4
"""Part of `MAX_IN_FLIGHT` reserved for urgencies after `RUN` while such writes wait."""
RETRY_SECONDS = 30.0
"""A rejected write is retried for this long; then the rejection is its result."""

_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 5.0

_AFTER_RUN = tuple(urgency for urgency in Urgency if urgency is not Urgency.RUN)
_OVERLOADED = frozenset({429, 503})
_FAILED = frozenset({500, 502, 504})


class WriteEffect(Enum):
    """Effect of a write, by the HTTP status of its reply."""

    FINAL = "final"
    NONE = "none"
    """The server was overloaded or shutting down: not executed, worth a retry."""
    UNKNOWN = "unknown"


def write_effect(status: int) -> WriteEffect:
    """Classify a status. 500 is unknown too: etcd may have stored the write and timed out on the reply."""
    if status in _OVERLOADED:
        return WriteEffect.NONE
    return WriteEffect.UNKNOWN if status in _FAILED else WriteEffect.FINAL


def backoff_seconds(
    tries: int,
    draw: float,
    at_least: float = 0.0,
    first: float = _FIRST_BACKOFF_SECONDS,
    longest: float = _MAX_BACKOFF_SECONDS,
) -> float:
    """Exponential back-off before the next attempt, jittered by `draw` (0..1) against synchronized retries."""
    doubled = min(longest, first * 2.0 ** min(tries, 20))
    return max(at_least, doubled * (0.5 + 0.5 * draw))


class _WriteState(Enum):
    QUEUED = 0
    BLOCKED = 1
    """Another write of its slot is in flight."""
    BACKING_OFF = 2
    IN_FLIGHT = 3
    REPLACED = 4
    """Its write moved to a more urgent queue."""


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A write without a result yet."""

    write: Write
    urgency: Urgency
    enqueued_at: float
    tries: int = 0
    state: _WriteState = _WriteState.QUEUED


class WriteQueue:
    """All writes without a result yet."""

    def __init__(self, in_flight: int = MAX_IN_FLIGHT, reserved: int = RESERVED_IN_FLIGHT) -> None:
        self._limit, self._reserved = in_flight, reserved
        self._queues: dict[Urgency, deque[PendingWrite]] = {urgency: deque() for urgency in Urgency}
        self._queued = dict.fromkeys(Urgency, 0)
        self._in_flight = self._running = self._verdicts = 0
        """Number of writes in flight, and how many of them are `RUN` and `VERDICT`."""
        self._backing_off: list[tuple[float, int, PendingWrite]] = []
        self._count = 0
        self._waiting_in_slot: dict[str, PendingWrite] = {}
        self._busy_slots: set[str] = set()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def size(self) -> int:
        """Number of writes in flight or waiting."""
        blocked = sum(pending.state is _WriteState.BLOCKED for pending in self._waiting_in_slot.values())
        return self.in_flight + sum(self._queued.values()) + len(self._backing_off) + blocked

    @property
    def next_due(self) -> float | None:
        """Time at which the first back-off ends; None if no write is backing off."""
        return self._backing_off[0][0] if self._backing_off else None

    def put(self, write: Write, now: float) -> Write | None:
        """Add a write; return the waiting write of the same slot that it replaces, if any."""
        waiting = self._waiting_in_slot.get(write.slot) if write.slot else None
        if waiting is None:
            self._add(PendingWrite(write, write.urgency, now))
            return None
        replaced = waiting.write
        if waiting.state is _WriteState.QUEUED and write.urgency < waiting.urgency:
            waiting.state = _WriteState.REPLACED
            self._queued[waiting.urgency] -= 1
            self._add(PendingWrite(write, write.urgency, now))
        else:
            waiting.write, waiting.enqueued_at = write, now
            waiting.urgency = min(waiting.urgency, write.urgency)
        return replaced

    def pop(self, now: float) -> PendingWrite | None:
        """Take the next write to send; the caller must `finish` or `retry` it."""
        while self._backing_off and self._backing_off[0][0] <= now:
            self._enqueue(heapq.heappop(self._backing_off)[2])
        urgency = self._next_urgency()
        if urgency is None:
            return None
        pending = self._pop_first(urgency)
        pending.state = _WriteState.IN_FLIGHT
        pending.tries += 1
        self._in_flight += 1
        self._running += urgency is Urgency.RUN
        self._verdicts += urgency is Urgency.VERDICT
        if pending.write.slot:
            del self._waiting_in_slot[pending.write.slot]
            self._busy_slots.add(pending.write.slot)
        return pending

    def finish(self, pending: PendingWrite) -> None:
        """Remove a write that has its result."""
        self._leave_flight(pending)
        slot = pending.write.slot
        if slot:
            self._busy_slots.discard(slot)
            if blocked := self._waiting_in_slot.get(slot):
                self._enqueue(blocked)

    def retry(self, pending: PendingWrite, not_before: float) -> Write | None:
        """Queue a rejected write again; return it instead if a later write of its slot replaces it."""
        slot = pending.write.slot
        if slot in self._waiting_in_slot:
            self.finish(pending)
            return pending.write
        self._leave_flight(pending)
        pending.state = _WriteState.BACKING_OFF
        if slot:
            self._busy_slots.discard(slot)
            self._waiting_in_slot[slot] = pending
        self._count += 1
        heapq.heappush(self._backing_off, (not_before, self._count, pending))
        return None

    def _leave_flight(self, pending: PendingWrite) -> None:
        self._in_flight -= 1
        self._running -= pending.urgency is Urgency.RUN
        self._verdicts -= pending.urgency is Urgency.VERDICT

    def _add(self, pending: PendingWrite) -> None:
        slot = pending.write.slot
        if slot:
            self._waiting_in_slot[slot] = pending
        if slot in self._busy_slots:
            pending.state = _WriteState.BLOCKED
        else:
            self._enqueue(pending)

    def _enqueue(self, pending: PendingWrite) -> None:
        pending.state = _WriteState.QUEUED
        self._queues[pending.urgency].append(pending)
        self._queued[pending.urgency] += 1

    def _next_urgency(self) -> Urgency | None:
        """Choose the urgency to send next.

        A few verdicts go before all else, because a user waits for each. Then `RUN`, except for the reserved part
        of the limit while other writes wait and do not fill them already.
        """
        in_flight, queued = self._in_flight, self._queued
        if in_flight >= self._limit:
            return None
        if queued[Urgency.VERDICT] and self._verdicts < self._reserved:
            return Urgency.VERDICT
        after_run = next((urgency for urgency in _AFTER_RUN if queued[urgency]), None)
        if queued[Urgency.RUN]:
            reserved = max(0, self._reserved - in_flight + self._running) if after_run is not None else 0
            if in_flight < self._limit - reserved:
                return Urgency.RUN
        return after_run

    def _pop_first(self, urgency: Urgency) -> PendingWrite:
        queue = self._queues[urgency]
        while (pending := queue.popleft()).state is _WriteState.REPLACED:
            pass
        self._queued[urgency] -= 1
        return pending
