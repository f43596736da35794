"""Which write goes out next, and what becomes of one that was not answered well. No I/O: time and luck come in.

The server is the bottleneck, so what is in flight is bounded, the urgent go first, and a few places are kept for what
somebody waits to read. Writes of one slot go one at a time; of those that wait only the latest is sent.

A write is repeated only where it surely was not done. Where nobody knows, the answer says so: whoever asked for it
looks at the world first. Repeating it here could delete a successor or create what was just deleted.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from enum import Enum

from sterna.backends.kubernetes.api.resources import Urgency, Write

IN_FLIGHT = 32
KEPT = 4
"""Places of those for urgencies after `RUN`, while such writes wait."""
PATIENCE_SECONDS = 30.0
"""For so long a write that was turned away is tried again; then whoever asked may think anew."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0

_LATER = tuple(urgency for urgency in Urgency if urgency is not Urgency.RUN)
_TURNED_AWAY = frozenset({429, 503})
_UNKNOWN = frozenset({500, 502, 504})


class Fate(Enum):
    """What a status says about whether the write was done."""

    KNOWN = "known"
    TURNED_AWAY = "turned away"
    """The server was too busy, or about to stop: not done, and worth another try."""
    UNKNOWN = "unknown"


def fate_of(status: int) -> Fate:
    """500 too is unknown: the store behind the server may have taken the write and failed to say so in time."""
    if status in _TURNED_AWAY:
        return Fate.TURNED_AWAY
    return Fate.UNKNOWN if status in _UNKNOWN else Fate.KNOWN


def pause_seconds(
    tries: int,
    draw: float,
    at_least: float = 0.0,
    first: float = _FIRST_PAUSE_SECONDS,
    longest: float = _LONGEST_PAUSE_SECONDS,
) -> float:
    """Before the next try: doubled each time, jittered by `draw` (0..1) so that many do not come back as one."""
    doubled = min(longest, first * 2.0 ** min(tries, 20))
    return max(at_least, doubled * (0.5 + 0.5 * draw))


class _Place(Enum):
    QUEUED = 0
    HELD = 1
    """Another write of its slot is in flight."""
    LATER = 2
    """It was turned away and waits for its time."""
    IN_FLIGHT = 3
    VOID = 4
    """Its write went on to a more urgent queue."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A write under way."""

    write: Write
    urgency: Urgency
    asked_at: float
    tries: int = 0
    place: _Place = _Place.QUEUED


class Outbox:
    """All writes that were asked for and are not answered yet."""

    def __init__(self, in_flight: int = IN_FLIGHT, kept: int = KEPT) -> None:
        self._limit, self._kept = in_flight, kept
        self._queues: dict[Urgency, deque[Ticket]] = {urgency: deque() for urgency in Urgency}
        self._queued = dict.fromkeys(Urgency, 0)
        self._in_flight = self._running = self._verdicts = 0
        """All that is under way, and what of it is `RUN` or `VERDICT`."""
        self._later: list[tuple[float, int, Ticket]] = []
        self._count = 0
        self._waiting_in_slot: dict[str, Ticket] = {}
        self._busy_slots: set[str] = set()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def size(self) -> int:
        """In flight or waiting."""
        held = sum(ticket.place is _Place.HELD for ticket in self._waiting_in_slot.values())
        return self.in_flight + sum(self._queued.values()) + len(self._later) + held

    @property
    def next_due(self) -> float | None:
        """When the first of those that were turned away may try again."""
        return self._later[0][0] if self._later else None

    def put(self, write: Write, now: float) -> Write | None:
        """Take it in; the write whose place it takes, if one of its slot waited."""
        waiting = self._waiting_in_slot.get(write.slot) if write.slot else None
        if waiting is None:
            self._enter(Ticket(write, write.urgency, now))
            return None
        replaced = waiting.write
        if waiting.place is _Place.QUEUED and write.urgency < waiting.urgency:
            waiting.place = _Place.VOID
            self._queued[waiting.urgency] -= 1
            self._enter(Ticket(write, write.urgency, now))
        else:
            waiting.write, waiting.asked_at = write, now
            waiting.urgency = min(waiting.urgency, write.urgency)
        return replaced

    def next(self, now: float) -> Ticket | None:
        """What may go out now; `done` or `again` must follow."""
        while self._later and self._later[0][0] <= now:
            self._queue(heapq.heappop(self._later)[2])
        urgency = self._next_urgency()
        if urgency is None:
            return None
        ticket = self._pop(urgency)
        ticket.place = _Place.IN_FLIGHT
        ticket.tries += 1
        self._in_flight += 1
        self._running += urgency is Urgency.RUN
        self._verdicts += urgency is Urgency.VERDICT
        if ticket.write.slot:
            del self._waiting_in_slot[ticket.write.slot]
            self._busy_slots.add(ticket.write.slot)
        return ticket

    def done(self, ticket: Ticket) -> None:
        """It was answered."""
        self._leave(ticket)
        slot = ticket.write.slot
        if slot:
            self._busy_slots.discard(slot)
            if held := self._waiting_in_slot.get(slot):
                self._queue(held)

    def again(self, ticket: Ticket, not_before: float) -> Write | None:
        """It was turned away. The write itself comes back if a later one of its slot goes in its stead."""
        slot = ticket.write.slot
        if slot in self._waiting_in_slot:
            self.done(ticket)
            return ticket.write
        self._leave(ticket)
        ticket.place = _Place.LATER
        if slot:
            self._busy_slots.discard(slot)
            self._waiting_in_slot[slot] = ticket
        self._count += 1
        heapq.heappush(self._later, (not_before, self._count, ticket))
        return None

    def _leave(self, ticket: Ticket) -> None:
        self._in_flight -= 1
        self._running -= ticket.urgency is Urgency.RUN
        self._verdicts -= ticket.urgency is Urgency.VERDICT

    def _enter(self, ticket: Ticket) -> None:
        slot = ticket.write.slot
        if slot:
            self._waiting_in_slot[slot] = ticket
        if slot in self._busy_slots:
            ticket.place = _Place.HELD
        else:
            self._queue(ticket)

    def _queue(self, ticket: Ticket) -> None:
        ticket.place = _Place.QUEUED
        self._queues[ticket.urgency].append(ticket)
        self._queued[ticket.urgency] += 1

    def _next_urgency(self) -> Urgency | None:
        """A few verdicts before all else, for each goes to somebody who waits. Then `RUN`, but for the places that are
        kept while others wait and do not fill them already."""
        in_flight, queued = self._in_flight, self._queued
        if in_flight >= self._limit:
            return None
        if queued[Urgency.VERDICT] and self._verdicts < self._kept:
            return Urgency.VERDICT
        later = next((urgency for urgency in _LATER if queued[urgency]), None)
        if queued[Urgency.RUN]:
            kept = max(0, self._kept - in_flight + self._running) if later is not None else 0
            if in_flight < self._limit - kept:
                return Urgency.RUN
        return later

    def _pop(self, urgency: Urgency) -> Ticket:
        queue = self._queues[urgency]
        while (ticket := queue.popleft()).place is _Place.VOID:
            pass
        self._queued[urgency] -= 1
        return ticket
