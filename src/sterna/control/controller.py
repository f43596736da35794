"""The controller: one loop for every world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sterna.control.backend import Backend
from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.errors import Bug
from sterna.model.plan import Decision
from sterna.model.snapshot import Snapshot


class Recorder(Protocol):
    """Keeps rounds. Asked before anything is carried out, because a snapshot's columns do not outlive that."""

    def record(self, snapshot: Snapshot, decision: Decision, /) -> None: ...


class Controller:
    """Observe, decide, check, act, journal; then wait for the next occasion."""

    def __init__(self, backend: Backend, rules: Rules, journal: Recorder | None = None) -> None:
        self._backend = backend
        self._rules = rules
        self._journal = journal
        self.rounds = 0

    def round(self) -> Decision:
        """Decide once and carry it out. Stale actions are dropped: the next round looks again."""
        snapshot = self._backend.observe()
        try:
            decision = decide(snapshot, self._rules)
            check(decision.plan, snapshot)
        except Bug as bug:
            raise Bug(f"round {self.rounds} at {snapshot.now:g} s: {bug}") from None
        if self._journal is not None:
            self._journal.record(snapshot, decision)
        if decision.plan.actions:
            self._backend.apply(decision.plan.actions)
        self.rounds += 1
        return decision

    def run(self, on_round: Callable[[], None] | None = None) -> None:
        """Go on until the world says that nothing will ever happen again."""
        until = self.round().until
        while self._backend.wait(until):
            until = self.round().until
            if on_round is not None:
                on_round()
