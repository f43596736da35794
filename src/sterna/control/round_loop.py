"""The round loop shared by the simulator, the daemon and the operator: observe, decide, check, record, apply, wait.

`RoundLoop` knows no cluster. A `Backend` provides the snapshots and applies the plans; observers see every round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from sterna.control.backend import Backend
from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.errors import Bug
from sterna.model.plan import Decision, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, Snapshot

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
"""Back-off after a failed round: doubled from the first to the second."""


class RoundObserver(Protocol):
    """Sees every round before its plan is applied; the snapshot's columns are not valid after that."""

    def record(self, snapshot: Snapshot, decision: Decision, /) -> None: ...


class RoundLoop:
    """Decides round after round and has the backend apply the plans."""

    def __init__(
        self,
        backend: Backend,
        rules: Rules | Callable[[], Rules],
        observers: Sequence[RoundObserver] = (),
        *,
        on_bug: Callable[[Bug], None] | None = None,
        on_error: Callable[[Exception, float], None] | None = None,
        on_round: Callable[[float], None] | None = None,
        revisit_at: Callable[[], float] | None = None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rules`: fixed, or a function that is called in every round.

        `on_bug`: called with a defect of a plan that concerns a single job; the plan is applied without that job.
        Without it the round raises. `on_error`: called with an error that ended a round and the seconds until the next
        attempt; without it `run` raises. `on_round`: called after each round with its duration in seconds.
        `revisit_at`: latest time of the next round, on the backend's clock, if the decision has a later one. `stop`
        ends `run`. `clock` is for `last_round_at` and durations.
        """
        self._backend, self._observers = backend, tuple(observers)
        self._rules: Callable[[], Rules] = (lambda: rules) if isinstance(rules, Rules) else rules
        self._on_bug, self._on_error, self._on_round = on_bug, on_error, on_round
        self._revisit_at, self._clock = revisit_at, clock
        self._stop = stop if stop is not None else threading.Event()
        self.rounds = 0
        self.last_round_at = clock()
        """Time on `clock` of the last finished round; until there is one, of the loop's creation. For health checks."""

    def round(self) -> Decision:
        """Run one round. Actions that have become stale are dropped: the next round decides on them again."""
        snapshot = self._backend.observe()
        try:
            decision = self._validate(decide(snapshot, self._rules()), snapshot)
        except Bug as bug:
            raise Bug(f"round {self.rounds} at {snapshot.now:g} s: {bug}") from None
        for observer in self._observers:
            observer.record(snapshot, decision)
        self._backend.apply(decision)
        self.rounds += 1
        return decision

    def run(self) -> None:
        """Run rounds until the backend has no more events, or `stop` is set; retry failed rounds with back-off."""
        retry_seconds = FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            try:
                if not self._backend.wait(self._run_round()):
                    return
                retry_seconds = FIRST_RETRY_SECONDS
            except Exception as error:
                if self._on_error is None:
                    raise
                self._on_error(error, retry_seconds)
                self._stop.wait(retry_seconds)
                retry_seconds = min(2 * retry_seconds, MAX_RETRY_SECONDS)

    def _run_round(self) -> float:
        """Run and time one round; return the time of the next one, unless an event comes first."""
        began = self._clock()
        until = self.round().until
        self.last_round_at = self._clock()
        if self._on_round is not None:
            self._on_round(self.last_round_at - began)
        return until if self._revisit_at is None else min(until, self._revisit_at())

    def _validate(self, decision: Decision, snapshot: Snapshot) -> Decision:
        """Check the plan; with `on_bug`, leave out jobs about which it is wrong."""
        while True:
            try:
                check(decision.plan, snapshot)
            except Bug as bug:
                if self._on_bug is None or bug.row is None:
                    raise
                self._on_bug(bug)
                decision = _without_job(decision, bug.row)
            else:
                return decision


def _without_job(decision: Decision, row: int) -> Decision:
    actions = [action for action in decision.plan.actions if action.row != row]

    def explain() -> Sequence[Reason]:
        return [reason for reason in decision.reasons if reason.row != row]

    return Decision(Plan(actions), decision.until, explain)


class ChangedRounds:
    """Observer that passes on rounds with actions, and of the others at most one per `interval_seconds` whose reasons
    differ from those of the last recorded round. Keeps a journal small on an idle cluster."""

    def __init__(self, observer: RoundObserver, interval_seconds: float = 1.0) -> None:
        self._observer, self._interval_seconds = observer, interval_seconds
        self._recorded_at = -NEVER
        self._recorded: Sequence[Reason] | None = None
        self.due_at = NEVER
        """Time from which a round that was left out because of the interval is recorded; `NEVER`: none was."""

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        reasons, due_at = decision.reasons, self._recorded_at + self._interval_seconds
        if not decision.plan.actions and (reasons == self._recorded or snapshot.now < due_at):
            self.due_at = NEVER if reasons == self._recorded else due_at
            return
        self._recorded, self._recorded_at, self.due_at = reasons, snapshot.now, NEVER
        self._observer.record(snapshot, decision)
