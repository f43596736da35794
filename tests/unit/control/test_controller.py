"""The controller's round, with a world that says exactly what a test wants it to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from sterna.control.controller import Controller
from sterna.engine.decide import Rules
from sterna.engine.registry import Placed, Target
from sterna.errors import Bug
from sterna.model.cluster import Assignment, Ints
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.snapshot import NEVER, JobKey, Snapshot
from sterna.wiring import make_placement, make_policy, make_rules
from tests.builders import World, a_job, a_snapshot, after, world_of


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

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        names = [self.snapshot.jobs.name_of(action.row) for action in actions]
        self.asked.append(names)
        done = [action for action, name in zip(actions, names, strict=True) if name not in self.refuses]
        self.snapshot = after(self.snapshot, Decision(Plan(done)))
        return [Outcome.STALE if name in self.refuses else Outcome.APPLIED for name in names]

    def wait(self, until: float, is_full: bool = False) -> bool:
        self.waited.append(until)
        self.waits -= 1
        world = world_of(self.snapshot)
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
    decision = Controller(world, make_rules("fifo", "stay")).round()
    assert world.asked == [["a", "b"]]
    assert len(decision.plan) == 2


def test_a_plan_without_changes_is_not_sent() -> None:
    """VODA-69."""
    world = a_world()
    controller = Controller(world, make_rules("fifo", "stay"))
    controller.round()
    controller.round()
    assert world.asked == [["a", "b"]]
    assert controller.rounds == 2


def test_what_was_stale_is_looked_at_again_in_the_next_round() -> None:
    world = a_world()
    world.refuses = {"b"}
    controller = Controller(world, make_rules("fifo", "stay"))
    controller.round()
    world.refuses = set()
    controller.round()
    assert world.asked == [["a", "b"], ["b"]]


def test_it_runs_until_nothing_will_ever_happen() -> None:
    world = a_world(waits=3)
    seen: list[int] = []
    controller = Controller(world, make_rules("fifo", "stay"))
    controller.run(lambda: seen.append(controller.rounds))
    assert controller.rounds == 4
    assert world.waited == [NEVER] * 4


def test_it_waits_no_longer_than_a_decision_stands() -> None:
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", 2, submit=1)]
    world = FakeWorld(a_snapshot(jobs, 4, now=5), waits=0)
    Controller(world, make_rules("dragon", "stay")).run()
    assert world.waited == [31]


def test_rounds_are_recorded_before_they_are_carried_out() -> None:
    world, notes = a_world(waits=1), Notes()
    Controller(world, make_rules("fifo", "stay"), notes).run()
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
    controller = Controller(world, make_rules("fifo", "stay"))
    controller.round()
    broken = Controller(_full(world), rules)
    with pytest.raises(Bug, match=rf"^round 0 at 5 s: .*{words}"):
        broken.round()
    assert world.asked == [["a", "b"]]
    assert broken.rounds == 0


def _full(world: FakeWorld) -> FakeWorld:
    """The same world with a job more, for which there is no device."""
    was: World = world_of(world.snapshot)
    world.snapshot = a_snapshot([a_job("c", 2, submit=0), *was.jobs], was.nodes, now=was.now)
    return world


def test_a_policy_and_a_placement_at_odds_stop_the_round_with_its_number_too() -> None:
    def wants_all(snapshot: Snapshot) -> Target:
        return Target(np.full(len(snapshot.jobs), 2, dtype=np.int64))

    jobs = [a_job("a", (1, 2), devices=3)]
    world = FakeWorld(a_snapshot(jobs, 4, now=5))
    with pytest.raises(Bug, match=r"^round 0 at 5 s: .*do not come to terms"):
        Controller(world, Rules(wants_all, make_placement("stay"))).round()


def beyond_for_the_first(snapshot: Snapshot) -> Target:
    return Target(np.array([3, *snapshot.jobs.minimum[1:].tolist()], dtype=np.int64))


def test_a_plan_that_is_wrong_about_one_job_is_carried_out_for_the_others_where_somebody_is_told() -> None:
    world, told, notes = FakeWorld(a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 8, now=5)), list[str](), Notes()
    rules = Rules(beyond_for_the_first, make_placement("stay"))
    decision = Controller(world, rules, notes, lambda bug: told.append(str(bug))).round()
    assert told == ["a would get 3 workers, outside 2 to 2"]
    assert (world.asked, notes.rounds) == ([["b"]], [(5, 1)])
    assert [reason.row for reason in decision.reasons] == [1]


def test_a_plan_that_is_wrong_about_a_node_is_not_carried_out_whoever_is_told() -> None:
    world = a_world()
    Controller(world, make_rules("fifo", "stay")).round()
    with pytest.raises(Bug, match="over-committed"):
        Controller(_full(world), Rules(make_policy("fifo"), on_a_full_node), on_bug=lambda bug: None).round()
