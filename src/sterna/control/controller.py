"""The controller: one loop for every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sterna.control.backend import Backend
from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.errors import Bug
from sterna.model.plan import Decision, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import Snapshot


class Recorder(Protocol):
    """Keeps rounds. Asked before anything is carried out, because a snapshot's columns do not outlive that."""

    def record(self, snapshot: Snapshot, decision: Decision, /) -> None: ...


class Controller:
    """Observe, decide, check, act, journal; then wait for the next occasion."""

    def __init__(
        self,
        backend: Backend,
        rules: Rules,
        journal: Recorder | None = None,
        on_bug: Callable[[Bug], None] | None = None,
    ) -> None:
        """With `on_bug` a plan that is wrong about one job is carried out without that job, and the bug is told; else
        it is not carried out at all."""
        self._backend = backend
        self._rules = rules
        self._journal = journal
        self._on_bug = on_bug
        self.rounds = 0

    def round(self) -> Decision:
        """Decide once and carry it out. Stale actions are dropped: the next round looks again."""
        snapshot = self._backend.observe()
        try:
            decision = self._sound(decide(snapshot, self._rules), snapshot)
        except Bug as bug:
            raise Bug(f"round {self.rounds} at {snapshot.now:g} s: {bug}") from None
        if self._journal is not None:
            self._journal.record(snapshot, decision)
        if decision.plan.actions:
            self._backend.apply(decision.plan.actions)
        self.rounds += 1
        return decision

    def _sound(self, decision: Decision, snapshot: Snapshot) -> Decision:
        """What of a decision may be carried out: as long as a bug is about one job, nobody else waits because of it."""
        while True:
            try:
                check(decision.plan, snapshot)
            except Bug as bug:
                if self._on_bug is None or bug.row is None:
                    raise
                self._on_bug(bug)
                decision = _without(decision, bug.row)
            else:
                return decision

    def run(self, on_round: Callable[[], None] | None = None) -> None:
        """Go on until the world says that nothing will ever happen again."""
        until = self.round().until
        while self._backend.wait(until):
            until = self.round().until
            if on_round is not None:
                on_round()


def _without(decision: Decision, row: int) -> Decision:
    """The same, with nothing done to one job and nothing said of it."""
    actions = [action for action in decision.plan.actions if action.row != row]

    def explain() -> Sequence[Reason]:
        return [reason for reason in decision.reasons if reason.row != row]

    return Decision(Plan(actions), decision.until, explain)
