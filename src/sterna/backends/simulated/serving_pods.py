"""Serving pods on a simulated cluster: a scheduler of their own binds each one as soon as a node has room.

`ServingBackend` wraps a `SimulatedBackend`. The other scheduler does not consult Sterna. Jobs that Sterna stops or
shrinks release their devices only after `release_seconds`, because they save a checkpoint first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.model.cluster import ANYWHERE, Shape, slots_in
from sterna.model.plan import ActionKind, Decision, Outcome
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, Snapshot


class ServingLoad(NamedTuple):
    """Serving pod that arrives at `at_seconds` and runs for `for_seconds` once it is bound."""

    name: str
    at_seconds: float
    for_seconds: float
    shape: Shape


class ServingBackend:
    """Training and serving on the same nodes, until `horizon_seconds`."""

    def __init__(
        self,
        training: SimulatedBackend,
        loads: Sequence[ServingLoad],
        release_seconds: float,
        horizon_seconds: float,
    ) -> None:
        self._training = training
        self._coming = sorted(loads, key=lambda load: (load.at_seconds, load.name), reverse=True)
        self._pending: list[ServingLoad] = []
        self._ends: list[tuple[float, str, int, Shape]] = []
        self._release_seconds, self._horizon = release_seconds, horizon_seconds
        self._clear_at = np.full(len(training.observe().nodes), -NEVER)
        """Time from which the capacity released on each node can be used."""
        self.bound_at: dict[str, float] = {}

    @property
    def now(self) -> float:
        return self._training.now

    def observe(self) -> Snapshot:
        pods = tuple(ServingPod(load.name, load.shape, load.at_seconds) for load in self._pending)
        snapshot = self._training.observe()
        return replace(snapshot, serving=pods) if pods else snapshot

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        actions = decision.plan.actions
        if not actions:
            return ()
        outcomes = self._training.apply(decision)
        for action, outcome in zip(actions, outcomes, strict=True):
            if outcome is Outcome.APPLIED and action.kind in (ActionKind.STOP, ActionKind.SHRINK):
                stay = dict(action.after.workers)
                for node, count in action.before.workers:
                    if node != ANYWHERE and stay.get(node, 0) < count:
                        self._clear_at[node] = self.now + self._release_seconds
        self._bind()
        return outcomes

    def wait(self, until: float) -> bool:
        then = min(until, self._next_event(), self._horizon)
        if self.now >= self._horizon or not self._training.wait(then):
            return False
        while self._ends and self._ends[0][0] <= self.now:
            _, _, node, shape = heapq.heappop(self._ends)
            self._training.occupy_external(shape, node, -1)
        while self._coming and self._coming[-1].at_seconds <= self.now:
            self._pending.append(self._coming.pop())
        self._bind()
        return True

    def _next_event(self) -> float:
        events = [NEVER]
        if self._coming:
            events.append(self._coming[-1].at_seconds)
        if self._ends:
            events.append(self._ends[0][0])
        if self._pending:
            events += self._clear_at[self._clear_at > self.now].tolist()
        return min(events)

    def _bind(self) -> None:
        """Bind pending pods, oldest first, each to the first node that has room."""
        for load in list(self._pending):
            nodes = self._training.observe().nodes
            has_room = (
                (slots_in(nodes.free, load.shape) > 0) & (self._clear_at <= self.now) & nodes.accepting(load.shape)
            )
            if has_room.any():
                node = int(has_room.argmax())
                self._pending.remove(load)
                self._training.occupy_external(load.shape, node, 1)
                self.bound_at[load.name] = self.now
                heapq.heappush(self._ends, (self.now + load.for_seconds, load.name, node, load.shape))
