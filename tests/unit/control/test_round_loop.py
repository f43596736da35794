"""`RoundLoop` on a backend that the tests control."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from sterna.control.repeat_limit import RepeatLimit
from sterna.control.round_loop import ChangedRounds, RoundLoop
from sterna.engine.decide import Rules
from sterna.engine.registry import Placed, Target
from sterna.errors import Bug
from sterna.model.cluster import Assignment, Ints
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import NEVER, JobKey, Snapshot
from sterna.wiring import make_placement, make_policy, make_rules
from tests.builders import ClusterSpec, a_job, a_snapshot, after, spec_of


@dataclass
class FakeBackend:
    """Backend that applies plans to its snapshot and records the jobs of every plan."""

    snapshot: Snapshot
    refuses: set[str] = field(default_factory=set)
    waits: int = 3
    asked: list[list[str]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def observe(self) -> Snapshot:
        return self.snapshot

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        actions = decision.plan.actions
        names = [self.snapshot.jobs.name_of(action.row) for action in actions]
        self.asked.append(names)
        done = [action for action, name in zip(actions, names, strict=True) if name not in self.refuses]
        self.snapshot = after(self.snapshot, Decision(Plan(done)))
        return [Outcome.STALE if name in self.refuses else Outcome.APPLIED for name in names]

    def wait(self, until: float, is_full: bool = False) -> bool:
        self.waited.append(until)
        self.waits -= 1
        spec = spec_of(self.snapshot)
        self.snapshot = a_snapshot(spec.jobs, spec.nodes, now=spec.now + 10)
        return self.waits >= 0


def a_backend(waits: int = 3) -> FakeBackend:
    return FakeBackend(a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 4, now=5), waits=waits)


@dataclass
class RoundLog:
    rounds: list[tuple[float, int]] = field(default_factory=list)

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        self.rounds.append((snapshot.now, len(decision.plan)))


def test_a_round_observes_decides_and_acts() -> None:
    backend = a_backend()
    decision = RoundLoop(backend, make_rules("fifo", "stay")).round()
    assert backend.asked == [["a", "b"]]
    assert len(decision.plan) == 2


def test_a_plan_without_changes_has_no_actions() -> None:
    """VODA-69."""
    backend = a_backend()
    controller = RoundLoop(backend, make_rules("fifo", "stay"))
    controller.round()
    controller.round()
    assert backend.asked == [["a", "b"], []]
    assert controller.rounds == 2


def test_stale_action_is_retried_in_the_next_round() -> None:
    backend = a_backend()
    backend.refuses = {"b"}
    controller = RoundLoop(backend, make_rules("fifo", "stay"))
    controller.round()
    backend.refuses = set()
    controller.round()
    assert backend.asked == [["a", "b"], ["b"]]


def test_loop_runs_until_the_backend_has_no_more_events() -> None:
    backend = a_backend(waits=3)
    seconds: list[float] = []
    loop = RoundLoop(backend, make_rules("fifo", "stay"), on_round=seconds.append, clock=iter(range(100)).__next__)
    loop.run()
    assert loop.rounds == 4
    assert (seconds, loop.last_round_at) == ([1.0] * 4, 8)
    assert backend.waited == [NEVER] * 4


def test_loop_waits_at_most_until_the_decision_expires() -> None:
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", 2, submit=1)]
    backend = FakeBackend(a_snapshot(jobs, 4, now=5), waits=0)
    RoundLoop(backend, make_rules("dragon", "stay")).run()
    assert backend.waited == [31]


def test_rounds_are_recorded_before_they_are_applied() -> None:
    backend, log = a_backend(waits=1), RoundLog()
    RoundLoop(backend, make_rules("fifo", "stay"), (log,)).run()
    assert log.rounds == [(5, 2), (15, 0)]


def beyond_the_maximum(snapshot: Snapshot) -> Target:
    return Target(np.full(len(snapshot.jobs), 3, dtype=np.int64))


def on_a_full_node(snapshot: Snapshot, target: Ints) -> Placed:
    return Placed([Action(ActionKind.START, JobKey(0), 1, Assignment(), Assignment(((0, 2),)))], [])


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Rules(beyond_the_maximum, make_placement("none")), "outside 2 to 2"),
        (Rules(make_policy("fifo"), on_a_full_node), "over-committed"),
    ],
)
def test_violation_stops_the_round_before_its_actions(rules: Rules, words: str) -> None:
    backend = a_backend()
    controller = RoundLoop(backend, make_rules("fifo", "stay"))
    controller.round()
    broken = RoundLoop(_with_waiting_job(backend), rules)
    with pytest.raises(Bug, match=rf"^round 0 at 5 s: .*{words}"):
        broken.round()
    assert backend.asked == [["a", "b"]]
    assert broken.rounds == 0


def _with_waiting_job(backend: FakeBackend) -> FakeBackend:
    """Add a waiting job for which no device is free."""
    was: ClusterSpec = spec_of(backend.snapshot)
    backend.snapshot = a_snapshot([a_job("c", 2, submit=0), *was.jobs], was.nodes, now=was.now)
    return backend


def test_failed_negotiation_stops_the_round_and_names_its_number() -> None:
    def wants_all(snapshot: Snapshot) -> Target:
        return Target(np.full(len(snapshot.jobs), 2, dtype=np.int64))

    jobs = [a_job("a", (1, 2), devices=3)]
    backend = FakeBackend(a_snapshot(jobs, 4, now=5))
    with pytest.raises(Bug, match=r"^round 0 at 5 s: .*do not come to terms"):
        RoundLoop(backend, Rules(wants_all, make_placement("stay"))).round()


def beyond_for_the_first(snapshot: Snapshot) -> Target:
    return Target(np.array([3, *snapshot.jobs.minimum[1:].tolist()], dtype=np.int64))


def test_plan_with_one_wrong_job_is_applied_to_the_others_if_bugs_are_handled() -> None:
    backend = FakeBackend(a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 8, now=5))
    reported, log = list[str](), RoundLog()
    rules = Rules(beyond_for_the_first, make_placement("stay"))
    decision = RoundLoop(backend, rules, (log,), on_bug=lambda bug: reported.append(str(bug))).round()
    assert reported == ["a would get 3 workers, outside 2 to 2"]
    assert (backend.asked, log.rounds) == ([["b"]], [(5, 1)])
    assert [reason.row for reason in decision.reasons] == [1]


def test_plan_that_overcommits_a_node_is_never_applied() -> None:
    backend = a_backend()
    RoundLoop(backend, make_rules("fifo", "stay")).round()
    with pytest.raises(Bug, match="over-committed"):
        RoundLoop(
            _with_waiting_job(backend), Rules(make_policy("fifo"), on_a_full_node), on_bug=lambda bug: None
        ).round()


class FailingBackend(FakeBackend):
    """Fails in its first two rounds."""

    failures = 2

    def observe(self) -> Snapshot:
        if self.failures:
            self.failures -= 1
            raise OSError("no disk")
        return super().observe()


class NoWaiting(threading.Event):
    """An event that records waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return False


def test_failed_rounds_are_reported_and_retried_with_back_off() -> None:
    backend, stop, reported = FailingBackend(a_backend().snapshot, waits=0), NoWaiting(), list[tuple[str, float]]()
    loop = RoundLoop(
        backend,
        make_rules("fifo", "stay"),
        on_error=lambda error, seconds: reported.append((str(error), seconds)),
        stop=stop,
    )
    loop.run()
    assert reported == [("no disk", 1.0), ("no disk", 2.0)]
    assert stop.waits == [1.0, 2.0]
    assert (loop.rounds, backend.asked) == (1, [["a", "b"]])


def test_without_an_error_handler_a_failed_round_ends_the_loop() -> None:
    with pytest.raises(OSError, match="no disk"):
        RoundLoop(FailingBackend(a_backend().snapshot), make_rules("fifo", "stay")).run()


def test_stop_ends_the_loop_before_the_next_round() -> None:
    backend, stop = a_backend(), threading.Event()
    loop = RoundLoop(backend, make_rules("fifo", "stay"), on_round=lambda seconds: stop.set(), stop=stop)
    loop.run()
    assert loop.rounds == 1


def test_rules_may_change_between_rounds() -> None:
    backend, rules = a_backend(waits=1), iter([make_rules("fifo", "stay"), make_rules("srjf", "pack")])
    RoundLoop(backend, lambda: next(rules)).run()
    assert next(rules, None) is None


def test_an_observer_may_ask_for_an_earlier_round() -> None:
    backend = a_backend(waits=0)
    RoundLoop(backend, make_rules("fifo", "stay"), revisit_at=lambda: 17.0).run()
    assert backend.waited == [17.0]


def test_reasons_reach_the_backend_with_the_plan() -> None:
    reasons: list[str] = []

    class Reading(FakeBackend):
        def apply(self, decision: Decision) -> Sequence[Outcome]:
            reasons.extend(reason.job for reason in decision.reasons)
            return super().apply(decision)

    backend = Reading(a_snapshot([a_job("a", 4), a_job("b", 2, submit=1)], 4, now=5))
    loop = RoundLoop(backend, make_rules("fifo", "stay"))
    loop.round()
    loop.round()
    assert reasons == ["a", "b", "b"]


def test_rounds_without_changes_are_recorded_when_reasons_differ_and_at_most_once_per_interval() -> None:
    log = RoundLog()
    changes = ChangedRounds(log)

    def record(now: float, missing: int) -> None:
        snapshot = a_snapshot([a_job("a", 2)], 4, now=now)
        changes.record(snapshot, Decision(Plan(), explain=lambda: [Reason(0, "a", Code.NEEDS_DEVICES, missing)]))

    record(1.0, 1)
    record(1.5, 1)
    assert (log.rounds, changes.due_at) == ([(1.0, 0)], NEVER)
    record(1.6, 2)
    assert (log.rounds, changes.due_at) == ([(1.0, 0)], 2.0)
    record(2.0, 2)
    assert (log.rounds, changes.due_at) == ([(1.0, 0), (2.0, 0)], NEVER)


def test_a_message_is_admitted_once_per_interval() -> None:
    times = iter([0.0, 1.0, 2.0, 61.0])
    limit = RepeatLimit(60.0, clock=times.__next__)
    assert [limit.admits(message) for message in ("a", "a", "b", "a")] == [True, False, True, True]
