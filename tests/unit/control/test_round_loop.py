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
class FakeWorld:
    """Carries plans out as told, and keeps what it was asked."""

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
        world = spec_of(self.snapshot)
        self.snapshot = a_snapshot(world.jobs, world.nodes, now=world.now + 10)
        return self.waits >= 0


def a_world(waits: int = 3) -> FakeWorld:
    return FakeWorld(a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 4, now=5), waits=waits)


@dataclass
class Notes:
    rounds: list[tuple[float, int]] = field(default_factory=list)

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        self.rounds.append((snapshot.now, len(decision.plan)))


def test_a_round_observes_decides_and_acts() -> None:
    world = a_world()
    decision = RoundLoop(world, make_rules("fifo", "stay")).round()
    assert world.asked == [["a", "b"]]
    assert len(decision.plan) == 2


def test_a_plan_without_changes_has_no_actions() -> None:
    """VODA-69."""
    world = a_world()
    controller = RoundLoop(world, make_rules("fifo", "stay"))
    controller.round()
    controller.round()
    assert world.asked == [["a", "b"], []]
    assert controller.rounds == 2


def test_what_was_stale_is_looked_at_again_in_the_next_round() -> None:
    world = a_world()
    world.refuses = {"b"}
    controller = RoundLoop(world, make_rules("fifo", "stay"))
    controller.round()
    world.refuses = set()
    controller.round()
    assert world.asked == [["a", "b"], ["b"]]


def test_it_runs_until_nothing_will_ever_happen() -> None:
    world = a_world(waits=3)
    seconds: list[float] = []
    loop = RoundLoop(world, make_rules("fifo", "stay"), on_round=seconds.append, clock=iter(range(100)).__next__)
    loop.run()
    assert loop.rounds == 4
    assert (seconds, loop.last_round_at) == ([1.0] * 4, 8)
    assert world.waited == [NEVER] * 4


def test_it_waits_no_longer_than_a_decision_stands() -> None:
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", 2, submit=1)]
    world = FakeWorld(a_snapshot(jobs, 4, now=5), waits=0)
    RoundLoop(world, make_rules("dragon", "stay")).run()
    assert world.waited == [31]


def test_rounds_are_recorded_before_they_are_carried_out() -> None:
    world, notes = a_world(waits=1), Notes()
    RoundLoop(world, make_rules("fifo", "stay"), (notes,)).run()
    assert notes.rounds == [(5, 2), (15, 0)]


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
def test_a_violation_stops_the_round_before_anything_is_done(rules: Rules, words: str) -> None:
    world = a_world()
    controller = RoundLoop(world, make_rules("fifo", "stay"))
    controller.round()
    broken = RoundLoop(_full(world), rules)
    with pytest.raises(Bug, match=rf"^round 0 at 5 s: .*{words}"):
        broken.round()
    assert world.asked == [["a", "b"]]
    assert broken.rounds == 0


def _full(world: FakeWorld) -> FakeWorld:
    """The same world with a job more, for which there is no device."""
    was: ClusterSpec = spec_of(world.snapshot)
    world.snapshot = a_snapshot([a_job("c", 2, submit=0), *was.jobs], was.nodes, now=was.now)
    return world


def test_a_policy_and_a_placement_at_odds_stop_the_round_with_its_number_too() -> None:
    def wants_all(snapshot: Snapshot) -> Target:
        return Target(np.full(len(snapshot.jobs), 2, dtype=np.int64))

    jobs = [a_job("a", (1, 2), devices=3)]
    world = FakeWorld(a_snapshot(jobs, 4, now=5))
    with pytest.raises(Bug, match=r"^round 0 at 5 s: .*do not come to terms"):
        RoundLoop(world, Rules(wants_all, make_placement("stay"))).round()


def beyond_for_the_first(snapshot: Snapshot) -> Target:
    return Target(np.array([3, *snapshot.jobs.minimum[1:].tolist()], dtype=np.int64))


def test_a_plan_that_is_wrong_about_one_job_is_carried_out_for_the_others_where_somebody_is_told() -> None:
    world, told, notes = FakeWorld(a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 8, now=5)), list[str](), Notes()
    rules = Rules(beyond_for_the_first, make_placement("stay"))
    decision = RoundLoop(world, rules, (notes,), on_bug=lambda bug: told.append(str(bug))).round()
    assert told == ["a would get 3 workers, outside 2 to 2"]
    assert (world.asked, notes.rounds) == ([["b"]], [(5, 1)])
    assert [reason.row for reason in decision.reasons] == [1]


def test_a_plan_that_is_wrong_about_a_node_is_not_carried_out_whoever_is_told() -> None:
    world = a_world()
    RoundLoop(world, make_rules("fifo", "stay")).round()
    with pytest.raises(Bug, match="over-committed"):
        RoundLoop(_full(world), Rules(make_policy("fifo"), on_a_full_node), on_bug=lambda bug: None).round()


class FailingBackend(FakeWorld):
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
    backend, stop, reported = FailingBackend(a_world().snapshot, waits=0), NoWaiting(), list[tuple[str, float]]()
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
        RoundLoop(FailingBackend(a_world().snapshot), make_rules("fifo", "stay")).run()


def test_stop_ends_the_loop_before_the_next_round() -> None:
    world, stop = a_world(), threading.Event()
    loop = RoundLoop(world, make_rules("fifo", "stay"), on_round=lambda seconds: stop.set(), stop=stop)
    loop.run()
    assert loop.rounds == 1


def test_rules_may_change_between_rounds() -> None:
    world, rules = a_world(waits=1), iter([make_rules("fifo", "stay"), make_rules("srjf", "pack")])
    RoundLoop(world, lambda: next(rules)).run()
    assert next(rules, None) is None


def test_an_observer_may_ask_for_an_earlier_round() -> None:
    world = a_world(waits=0)
    RoundLoop(world, make_rules("fifo", "stay"), revisit_at=lambda: 17.0).run()
    assert world.waited == [17.0]


def test_reasons_reach_the_backend_with_the_plan() -> None:
    reasons: list[str] = []

    class Reading(FakeWorld):
        def apply(self, decision: Decision) -> Sequence[Outcome]:
            reasons.extend(reason.job for reason in decision.reasons)
            return super().apply(decision)

    world = Reading(a_snapshot([a_job("a", 4), a_job("b", 2, submit=1)], 4, now=5))
    loop = RoundLoop(world, make_rules("fifo", "stay"))
    loop.round()
    loop.round()
    assert reasons == ["a", "b", "b"]


def test_rounds_without_changes_are_recorded_when_reasons_differ_and_at_most_once_per_interval() -> None:
    notes = Notes()
    changes = ChangedRounds(notes)

    def record(now: float, missing: int) -> None:
        snapshot = a_snapshot([a_job("a", 2)], 4, now=now)
        changes.record(snapshot, Decision(Plan(), explain=lambda: [Reason(0, "a", Code.NEEDS_DEVICES, missing)]))

    record(1.0, 1)
    record(1.5, 1)
    assert (notes.rounds, changes.due_at) == ([(1.0, 0)], NEVER)
    record(1.6, 2)
    assert (notes.rounds, changes.due_at) == ([(1.0, 0)], 2.0)
    record(2.0, 2)
    assert (notes.rounds, changes.due_at) == ([(1.0, 0), (2.0, 0)], NEVER)


def test_a_message_is_admitted_once_per_interval() -> None:
    times = iter([0.0, 1.0, 2.0, 61.0])
    limit = RepeatLimit(60.0, clock=times.__next__)
    assert [limit.admits(message) for message in ("a", "a", "b", "a")] == [True, False, True, True]
