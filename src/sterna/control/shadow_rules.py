"""The shadow: a second set of rules that decides every round too and is never obeyed.

For those who think of changing the policy of a cluster that works: the journal then says, round by round, what the
other one would have done and what it expected of it. Each round starts from what really was, so that its differences do
not add up; how history would have gone as a whole is for `sterna whatif`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.model.cluster import MILLI
from sterna.model.plan import Action, Decision
from sterna.model.snapshot import Snapshot


class Forecast(NamedTuple):
    """What a plan leads to, if nothing else happens."""

    jobs: int
    """Jobs that run."""
    devices: float
    """What they hold: devices, or CPUs on a cluster without."""
    speed: float
    """Work they do a second, in seconds at one worker."""
    left_seconds: float | None
    """Mean time until they end, restarts included; None where none runs or a total is unknown."""


class ShadowRound(NamedTuple):
    """What the shadow would have done in a round, and what it expected, beside what was expected of the real plan."""

    actions: tuple[Action, ...]
    until: float
    forecast: Forecast
    own: Forecast

    def differs_from(self, actions: Sequence[Action]) -> bool:
        return self.actions != tuple(actions)


class ShadowJournal(Protocol):
    """Keeps rounds together with what the shadow thought of them."""

    def record(self, snapshot: Snapshot, decision: Decision, shadow: ShadowRound | None, /) -> None: ...


class Shadow:
    """Hears of every round before it is carried out, asks the other rules, and hands both on to a journal."""

    def __init__(self, rules: Rules, journal: ShadowJournal | None = None) -> None:
        self._rules, self._journal = rules, journal
        self.rounds = 0
        self.differing = 0
        """Rounds in which it would have done something else."""
        self._speed, self._own_speed = 0.0, 0.0

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        other = decide(snapshot, self._rules)
        check(other.plan, snapshot)
        actions = tuple(other.plan.actions)
        view = ShadowRound(actions, other.until, forecast(snapshot, actions), forecast(snapshot, decision.plan.actions))
        self.rounds += 1
        self.differing += view.differs_from(decision.plan.actions)
        self._speed += view.forecast.speed
        self._own_speed += view.own.speed
        if self._journal is not None:
            self._journal.record(snapshot, decision, view)

    @property
    def summary(self) -> dict[str, float | None]:
        return {"rounds": self.rounds, "rounds_that_differ": self.differing, "speed_ratio": self.speed_ratio}

    @property
    def speed_ratio(self) -> float | None:
        """Work a second that it expected, over what was expected of the real plans, over all rounds."""
        return self._speed / self._own_speed if self._own_speed else None


def forecast(snapshot: Snapshot, actions: Sequence[Action]) -> Forecast:
    jobs = snapshot.jobs
    workers = jobs.workers.copy()
    restarts = np.zeros(len(jobs))
    for action in actions:
        workers[action.row] = action.after.size
        restarts[action.row] = snapshot.restart_seconds
    rows = workers.nonzero()[0]
    devices = int(snapshot.cost(workers).sum()) / MILLI
    if not len(rows):
        return Forecast(0, 0.0, 0.0, None)
    speed = snapshot.curves.speed(jobs.curve[rows], workers[rows])
    left = float((jobs.remaining[rows] / speed + restarts[rows]).mean())
    return Forecast(len(rows), devices, float(speed.sum()), left if np.isfinite(left) else None)
