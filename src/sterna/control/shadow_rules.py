"""Shadow rules: a second set of rules that decides every round too and is never applied.

For a change of policy on a running cluster: the journal records, round by round, what the other rules would have done
and expected. Each round starts from the real state, so differences do not add up; `sterna whatif` simulates a whole
history.
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
    """Result of a plan if nothing else happens."""

    jobs: int
    """Number of running jobs."""
    devices: float
    """Devices that they hold, or CPUs on a cluster without devices."""
    speed: float
    """Work per second, in seconds at one worker."""
    left_seconds: float | None
    """Mean time until they end, including restarts; None if none runs or a total is unknown."""


class ShadowRound(NamedTuple):
    """Plan of the shadow rules in one round, its forecast, and the forecast of the real plan."""

    actions: tuple[Action, ...]
    until: float
    forecast: Forecast
    own: Forecast

    def differs_from(self, actions: Sequence[Action]) -> bool:
        return self.actions != tuple(actions)


class ShadowJournal(Protocol):
    """Records rounds together with the shadow's."""

    def record(self, snapshot: Snapshot, decision: Decision, shadow: ShadowRound | None, /) -> None: ...


class Shadow:
    """Round observer that decides by other rules and passes both decisions to a journal."""

    def __init__(self, rules: Rules, journal: ShadowJournal | None = None) -> None:
        self._rules, self._journal = rules, journal
        self.rounds = 0
        self.differing = 0
        """Rounds with a different plan."""
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
        """Ratio of the expected work per second to that of the real plans, over all rounds."""
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
