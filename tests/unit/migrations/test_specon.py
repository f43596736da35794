"""SpeCon's rule, as published and repaired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.model.growth import Growth, Strict
from sterna.model.plan import ActionKind
from sterna.wiring import make_migration
from tests.crowds import Instant, Member, decided, moves_of

CROWD = tuple(Member(f"p{number}", left=800.0) for number in range(7))
DONE = Member("done", left=400.0, growth=Growth.CONVERGED)


@pytest.mark.parametrize("growth", [Growth.PROGRESSING, Growth.WATCHING])
@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_only_a_converged_job_is_moved(rule: str, growth: Growth) -> None:
    """DRAGON-84."""
    instant = Instant((*CROWD, Member("x", growth=growth)))
    assert moves_of(instant, decided(instant, rule)) == {}


@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_a_converged_job_moves_to_the_node_with_the_smallest_weight(rule: str) -> None:
    """DRAGON-85: weights, not counts; node 1 has as many jobs as node 2, but they have converged."""
    quiet = tuple(Member(f"q{n}", ((1, 1),), left=40.0, growth=Growth.CONVERGED, moves=1) for n in range(2))
    busy = tuple(Member(f"b{n}", ((2, 1),), left=800.0) for n in range(2))
    instant = Instant((*CROWD, DONE, *quiet, *busy), cores=(16.0, 16.0, 16.0))
    decision = decided(instant, rule)
    assert moves_of(instant, decision) == {"done": (1,)}
    assert [action.kind for action in decision.plan] == [ActionKind.MIGRATE]


@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_a_converged_job_on_the_lightest_node_stays(rule: str) -> None:
    """DRAGON-85."""
    others = tuple(Member(f"o{n}", ((1, 1),)) for n in range(4))
    instant = Instant((DONE, *others))
    assert moves_of(instant, decided(instant, rule)) == {}


def test_one_move_a_round_and_the_next_after_the_period() -> None:
    """DRAGON-86."""
    instant = Instant((*CROWD, DONE, replace(DONE, name="done2")))
    first = decided(instant, "specon")
    assert len(first.plan) == 1
    assert first.until == instant.now + 30
    then = instant.after(first, 29.0)
    assert len(decided(then, "specon").plan) == 0
    assert decided(then, "specon").until == instant.now + 30


def test_a_job_moves_once_unless_told_otherwise() -> None:
    """DRAGON-86."""
    instant = Instant((*CROWD, replace(DONE, moves=1)))
    assert moves_of(instant, decided(instant, "specon")) == {}
    assert moves_of(instant, decided(instant, "specon:most=2")) == {"done": (1,)}


def test_a_kept_job_is_looked_at_again_later() -> None:
    """DRAGON-86."""
    full = tuple(Member(f"f{n}", ((1, 1),), left=800.0) for n in range(7))
    instant = Instant((*CROWD, DONE, *full))
    kept = decided(instant, "specon")
    assert moves_of(instant, kept) == {}
    later = replace(instant, members=instant.members[:8], now=kept.until)
    assert moves_of(later, decided(later, "specon")) == {"done": (1,)}


def test_a_move_that_costs_more_than_it_gains_is_not_made() -> None:
    instant = Instant((*CROWD[:4], DONE), restart_seconds=10_000.0)
    assert moves_of(instant, decided(instant, "specon")) == {}
    assert moves_of(instant, decided(instant, "specon:strict=true")) == {"done": (1,)}
    assert moves_of(instant, decided(replace(instant, restart_seconds=0.0), "specon")) == {"done": (1,)}


def test_work_since_the_last_checkpoint_is_part_of_the_price() -> None:
    instant = Instant((*CROWD[:4], replace(DONE, unsaved=10_000.0)))
    assert moves_of(instant, decided(instant, "specon")) == {}


def test_nobody_moves_where_nodes_are_not_shared() -> None:
    jobs = tuple(replace(member, cap=float("nan")) for member in (*CROWD, DONE))
    assert moves_of(Instant(jobs), decided(Instant(jobs), "specon")) == {}


def test_a_closed_node_gets_nobody() -> None:
    instant = Instant((*CROWD, DONE), closed=frozenset({1}))
    assert moves_of(instant, decided(instant, "specon")) == {}
    assert moves_of(instant, decided(instant, "specon:strict=true")) == {}


def test_a_moved_job_names_the_one_that_gains_most() -> None:
    instant = Instant((*CROWD, DONE))
    action = decided(instant, "specon").plan.actions[0]
    assert action.evictor in {key for key, member in enumerate(instant.members) if member.name.startswith("p")}


def test_quality_counts_only_the_time_of_jobs_that_still_improve() -> None:
    """With everybody else converged too, nobody's time counts and nothing is worth a move."""
    settled = tuple(replace(member, growth=Growth.CONVERGED, moves=1) for member in CROWD)
    instant = Instant((*settled, DONE))
    assert moves_of(instant, decided(instant, "specon")) == {"done": (1,)}
    assert moves_of(instant, decided(instant, "specon:objective=quality")) == {}


def test_alpha_and_interval_say_how_categories_are_found() -> None:
    """DRAGON-81."""
    strict = make_migration("specon:strict=true:alpha=0.2:interval=20")
    rule = strict.growth_rule  # type: ignore[union-attr]
    assert (rule.strict, rule.alpha, rule.interval_seconds) == (Strict.SPECON, 0.2, 20.0)
    assert make_migration("specon").growth_rule.strict is Strict.NO  # type: ignore[union-attr]
