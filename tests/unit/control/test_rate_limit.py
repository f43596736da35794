"""The rate limit around a backend: how far apart rounds are, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import RoundLoop
from sterna.errors import Bug
from sterna.model.plan import Decision, Outcome
from sterna.model.snapshot import NEVER, Snapshot
from sterna.wiring import make_rules
from tests.builders import AJob, a_job
from tests.simulation.runs import a_workload


class Rounds:
    """Observer that records the time and the number of jobs of every round."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.jobs: list[int] = []

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        self.at.append(snapshot.now)
        self.jobs.append(len(snapshot.jobs))


def rounds_of(jobs: Sequence[AJob], limit_seconds: float) -> tuple[Rounds, SimulatedBackend]:
    backend, rounds = SimulatedBackend(a_workload(jobs), simulated_nodes("1x4")), Rounds()
    RoundLoop(RateLimited(backend, limit_seconds), make_rules("fifo", "stay"), (rounds,)).run()
    return rounds, backend


def one_each(*submit: float, remaining: float = 1000.0) -> list[AJob]:
    return [a_job(f"j{at:g}", 1, submit=at, remaining=remaining) for at in submit]


def test_events_within_the_limit_share_one_round() -> None:
    rounds, _ = rounds_of(one_each(0, 10, 20, 110), limit_seconds=100)
    assert rounds.at[:3] == [0, 100, 200]
    assert rounds.jobs[:3] == [1, 3, 4]


def test_first_event_after_an_idle_period_starts_a_round_at_once() -> None:
    rounds, _ = rounds_of(one_each(0, 500), limit_seconds=100)
    assert rounds.at[:2] == [0, 500]


def test_job_completed_within_the_limit_is_processed() -> None:
    jobs = [a_job("short", 4, remaining=40.0), a_job("next", 4, submit=1, remaining=40.0)]
    _, backend = rounds_of(jobs, limit_seconds=100)
    assert backend.first_start == [0, 100]
    assert max(backend.finish) < NEVER


def test_zero_limit_changes_no_completion() -> None:
    jobs = one_each(0, 10, 20, 110, remaining=70.0)
    limited, backend = rounds_of(jobs, limit_seconds=0)
    plain = SimulatedBackend(a_workload(jobs), simulated_nodes("1x4"))
    bare = Rounds()
    RoundLoop(plain, make_rules("fifo", "stay"), (bare,)).run()
    assert limited.at == bare.at
    assert backend.finish == plain.finish


def test_rounds_are_at_least_the_limit_apart() -> None:
    rounds, _ = rounds_of([a_job(f"j{n:02d}", 1, submit=7.0 * n, remaining=33.0 * (n % 5 + 1)) for n in range(30)], 60)
    assert min(b - a for a, b in zip(rounds.at, rounds.at[1:], strict=False)) >= 60


def test_rate_limited_loop_ends_without_further_events() -> None:
    backend = RateLimited(SimulatedBackend(a_workload(one_each(0)), simulated_nodes("1x4")), 50)
    RoundLoop(backend, make_rules("fifo", "stay")).run()
    assert not backend.wait(NEVER)


@pytest.mark.parametrize("limit", [-1.0, NEVER, float("nan")])
def test_limit_must_be_a_finite_duration(limit: float) -> None:
    with pytest.raises(Bug):
        RateLimited(SimulatedBackend(a_workload(one_each(0)), simulated_nodes("1x4")), limit)


class Closing:
    """Backend that closes before the rate limit has passed."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self._backend = backend
        self.waits = 0

    def observe(self) -> Snapshot:
        return self._backend.observe()

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        return self._backend.apply(decision)

    def wait(self, until: float) -> bool:
        self.waits += 1
        return self.waits == 1


def test_loop_ends_at_once_when_its_backend_closes() -> None:
    closing = Closing(SimulatedBackend(a_workload(one_each(0)), simulated_nodes("1x4")))
    RoundLoop(RateLimited(closing, 100), make_rules("fifo", "stay")).run()
    assert closing.waits == 2
