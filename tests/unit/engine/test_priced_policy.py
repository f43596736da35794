"""The engine asks for the price of every stop, shrink and growth, under every policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sterna.engine.decide import Rules, decide
from sterna.engine.priced_policy import LOSS_SHARE
from sterna.engine.registry import RuleKind
from sterna.model.plan import ActionKind
from sterna.model.snapshot import Snapshot
from sterna.placements.stay import Stay
from sterna.rules import Target
from sterna.wiring import rules_of
from tests.builders import AJob, a_job, a_snapshot, decided

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
every_policy = pytest.mark.parametrize("policy", POLICIES)

HOUR = 3600.0


def a_running_job(name: str = "runs", size: int | tuple[int, int] = 4, *, workers: int = 4, **fields: object) -> AJob:
    """A job that has run for an hour and has hours left."""
    usual: dict[str, object] = {"remaining": 10 * HOUR * workers, "executed": HOUR, "attained": HOUR * workers}
    return a_job(name, size, on={"n0": workers}, first_start=0.0, **(usual | fields))  # type: ignore[arg-type]


def a_short_job(name: str = "new", size: int = 4, **fields: object) -> AJob:
    return a_job(name, size, submit=HOUR, remaining=60.0, **fields)  # type: ignore[arg-type]


def test_a_long_job_is_stopped_for_a_short_one_if_that_pays() -> None:
    snapshot = a_snapshot([a_running_job(), a_short_job()], 4, now=HOUR, restart_seconds=30)
    assert decided(snapshot, "srjf").actions == [("STOP", "runs"), ("START", "new")]


def test_a_stop_carries_its_price() -> None:
    jobs = [a_running_job(unsaved=12.0), a_short_job()]
    decision = decided(a_snapshot(jobs, 4, now=HOUR, restart_seconds=30), "srjf").decision
    prices = {action.kind: action.price for action in decision.plan}
    assert prices == {ActionKind.STOP: 4 * (12 + 30), ActionKind.START: 0}


@every_policy
def test_a_job_that_cannot_save_is_never_stopped(policy: str) -> None:
    jobs = [a_running_job(can_save=False), a_short_job()]
    assert decided(a_snapshot(jobs, 4, now=HOUR, restart_seconds=1), policy).actions == []


@every_policy
def test_a_job_that_cannot_save_is_neither_shrunk_nor_grown_by_restart(policy: str) -> None:
    crowded = [a_running_job(size=(1, 4), can_save=False), a_short_job(size=1)]
    assert decided(a_snapshot(crowded, 4, now=HOUR, restart_seconds=1), policy).actions == []
    alone = [a_running_job(size=(1, 8), can_save=False)]
    assert decided(a_snapshot(alone, 8, now=HOUR, restart_seconds=1), policy).actions == []


def test_a_job_that_cannot_save_shrinks_in_place() -> None:
    jobs = [a_running_job(size=(1, 4), can_save=False, resize_seconds=0.1), a_short_job(size=1)]
    actions = decided(a_snapshot(jobs, 4, now=HOUR, restart_seconds=30), "elastic-fifo").actions
    assert actions == [("SHRINK", "runs"), ("START", "new")]


@every_policy
def test_a_job_about_to_end_is_not_stopped(policy: str) -> None:
    jobs = [a_running_job(remaining=4 * 40.0), a_short_job()]
    assert decided(a_snapshot(jobs, 4, now=HOUR, restart_seconds=30), policy).actions == []


@every_policy
def test_a_job_whose_changes_have_cost_its_share_of_lost_service_stays_as_it_is(policy: str) -> None:
    jobs = [a_running_job(spent=LOSS_SHARE * 4 * 11 * HOUR), a_short_job()]
    assert decided(a_snapshot(jobs, 4, now=HOUR, restart_seconds=30), policy).actions == []


def test_a_wide_job_is_not_stopped_for_a_narrow_one_that_would_wait_less_than_that_costs() -> None:
    """One device for 3000 s is worth less than four times 64 devices for 30 s."""
    wide = a_job("wide", 64, on={"n0": 64}, first_start=0.0, remaining=3000.0 * 64, executed=HOUR)
    narrow = a_short_job(size=1)
    assert decided(a_snapshot([wide, narrow], 64, now=HOUR, restart_seconds=30), "srjf").actions == []
    assert decided(a_snapshot([wide, narrow], 64, now=HOUR, restart_seconds=3), "srjf").actions != []


def test_growth_has_to_save_four_times_its_restart() -> None:
    """From 4 to 8 workers 1,200 s become 600 s."""
    jobs = [a_running_job(size=(4, 8), remaining=1200.0 * 4)]
    assert decided(a_snapshot(jobs, 8, restart_seconds=140), "elastic-fifo").actions == [("GROW", "runs")]
    assert decided(a_snapshot(jobs, 8, restart_seconds=160), "elastic-fifo").actions == []


def test_what_earlier_changes_cost_counts_against_growth() -> None:
    jobs = [a_running_job(size=(4, 8), remaining=1200.0 * 4, spent=4 * 20.0)]
    assert decided(a_snapshot(jobs, 8, restart_seconds=140), "elastic-fifo").actions == []


def test_devices_that_one_job_may_not_take_let_another_grow() -> None:
    """One more worker pays for neither job, two pay for the one that has longer to run."""
    jobs = [
        a_job("short", (2, 4), on={"n0": 2}, first_start=0.0, remaining=2 * 500.0, executed=HOUR),
        a_job("long", (2, 4), on={"n0": 2}, first_start=0.0, remaining=2 * 1000.0, executed=HOUR),
    ]
    result = decided(a_snapshot(jobs, 6, restart_seconds=100), "elastic-fifo")
    assert result.allocation == {"short": 2, "long": 4}


def test_a_job_of_unknown_length_is_expected_to_run_for_as_long_as_it_has_run() -> None:
    for ran, is_stopped in ((100.0, False), (10 * HOUR, True)):
        runs = a_running_job(remaining=float("nan"), executed=ran, attained=9000.0)
        result = decided(a_snapshot([runs, a_short_job()], 4, now=20 * HOUR, restart_seconds=30), "tiresias")
        assert (("STOP", "runs") in result.actions) is is_stopped


def test_the_engine_decides_again_when_a_job_of_unknown_length_has_run_long_enough_for_a_change_to_pay() -> None:
    """A stop costs 30 s: 6 % of a service of twice 250 s."""
    runs = a_running_job(remaining=float("nan"), executed=100.0, attained=9000.0)
    snapshot = a_snapshot([runs, a_short_job()], 4, now=20 * HOUR, restart_seconds=30)
    assert decided(snapshot, "srjf").decision.until == pytest.approx(20 * HOUR + 150)


def test_a_higher_priority_outranks_the_price_but_not_the_ability_to_save() -> None:
    urgent = a_short_job(priority=1)
    ending = a_running_job(remaining=4 * 40.0)
    assert decided(a_snapshot([ending, urgent], 4, now=HOUR, restart_seconds=30)).allocation["new"] == 4
    unsaved = a_running_job(can_save=False)
    assert decided(a_snapshot([unsaved, urgent], 4, now=HOUR, restart_seconds=30)).allocation["new"] == 0


def test_a_job_that_cannot_save_is_the_last_choice_of_a_higher_priority_if_the_administrator_allows_it() -> None:
    jobs = [
        a_running_job("unsaved", 2, workers=2, can_save=False),
        a_running_job("saves", 2, workers=2, submit=1.0),
        a_short_job(size=2, priority=1),
    ]
    snapshot = a_snapshot(jobs, 4, now=HOUR, restart_seconds=30, evicts_unsaved=True)
    assert decided(snapshot).actions == [("STOP", "saves"), ("START", "new")]
    jobs[2] = a_short_job(size=4, priority=1)
    snapshot = a_snapshot(jobs, 4, now=HOUR, restart_seconds=30, evicts_unsaved=True)
    assert decided(snapshot).allocation == {"unsaved": 0, "saves": 0, "new": 4}
    refused = a_snapshot(jobs, 4, now=HOUR, restart_seconds=30)
    assert decided(refused).allocation == {"unsaved": 2, "saves": 2, "new": 0}


@every_policy
def test_a_job_that_failed_before_it_ran_well_starts_on_free_capacity_only(policy: str) -> None:
    failed = a_short_job(may_preempt=False)
    assert decided(a_snapshot([a_running_job(), failed], 4, now=HOUR, restart_seconds=30), policy).actions == []
    roomy = decided(a_snapshot([a_running_job(), failed], 8, now=HOUR, restart_seconds=30), policy)
    assert roomy.allocation["new"] == 4


@every_policy
def test_a_job_in_back_off_keeps_its_devices_and_starts_when_the_back_off_ends(policy: str) -> None:
    back = a_job("back", 4, not_before=2 * HOUR, executed=HOUR, first_start=0.0)
    other = a_job("other", 4, submit=1.0)
    early = decided(a_snapshot([back, other], 4, now=HOUR), policy)
    assert early.actions == []
    assert early.decision.until <= 2 * HOUR
    assert decided(a_snapshot([back, other], 4, now=2 * HOUR), policy).allocation["back"] == 4


@dataclass(frozen=True)
class LastComeFirstServed:
    """A user's policy that knows of no price."""

    def __call__(self, snapshot: Snapshot) -> Target:
        target = np.zeros(len(snapshot.jobs), dtype=np.int64)
        free = snapshot.units
        for row in reversed(range(len(target))):
            cost = int(snapshot.minimum_cost[row])
            if cost <= free:
                target[row], free = snapshot.jobs.minimum[row], free - cost
        return Target(target)


def test_a_policy_that_ignores_the_price_is_priced_all_the_same() -> None:
    rules = Rules(LastComeFirstServed(), Stay())
    ending = [a_running_job(remaining=4 * 40.0), a_short_job()]
    assert len(decide(a_snapshot(ending, 4, now=HOUR), rules).plan) == 2
    assert len(decide(a_snapshot(ending, 4, now=HOUR, restart_seconds=30), rules).plan) == 0
