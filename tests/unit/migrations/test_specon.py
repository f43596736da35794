"""SpeCon's rule, as published and repaired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.model.growth import Growth, Strict
from sterna.model.plan import ActionKind
from sterna.wiring import make_migration
from tests.shared_nodes import SharedCluster, SharedJob, decided, moves_of

CROWD = tuple(SharedJob(f"p{number}", left=800.0) for number in range(7))
DONE = SharedJob("done", left=400.0, growth=Growth.CONVERGED)


@pytest.mark.parametrize("growth", [Growth.PROGRESSING, Growth.WATCHING])
@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_only_a_converged_job_is_moved(rule: str, growth: Growth) -> None:
    """DRAGON-84."""
    cluster = SharedCluster((*CROWD, SharedJob("x", growth=growth)))
    assert moves_of(cluster, decided(cluster, rule)) == {}


@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_a_converged_job_moves_to_the_node_with_the_smallest_weight(rule: str) -> None:
    """DRAGON-85: weights, not counts; node 1 has as many jobs as node 2, but they have converged."""
    quiet = tuple(SharedJob(f"q{n}", ((1, 1),), left=40.0, growth=Growth.CONVERGED, moves=1) for n in range(2))
    busy = tuple(SharedJob(f"b{n}", ((2, 1),), left=800.0) for n in range(2))
    cluster = SharedCluster((*CROWD, DONE, *quiet, *busy), cores=(16.0, 16.0, 16.0))
    decision = decided(cluster, rule)
    assert moves_of(cluster, decision) == {"done": (1,)}
    assert [action.kind for action in decision.plan] == [ActionKind.MIGRATE]


@pytest.mark.parametrize("rule", ["specon", "specon:strict=true"])
def test_a_converged_job_on_the_lightest_node_stays(rule: str) -> None:
    """DRAGON-85."""
    others = tuple(SharedJob(f"o{n}", ((1, 1),)) for n in range(4))
    cluster = SharedCluster((DONE, *others))
    assert moves_of(cluster, decided(cluster, rule)) == {}


def test_one_move_a_round_and_the_next_after_the_period() -> None:
    """DRAGON-86."""
    cluster = SharedCluster((*CROWD, DONE, replace(DONE, name="done2")))
    first = decided(cluster, "specon")
    assert len(first.plan) == 1
    assert first.until == cluster.now + 30
    then = cluster.after(first, 29.0)
    assert len(decided(then, "specon").plan) == 0
    assert decided(then, "specon").until == cluster.now + 30


def test_job_moves_once_by_default() -> None:
    """DRAGON-86."""
    cluster = SharedCluster((*CROWD, replace(DONE, moves=1)))
    assert moves_of(cluster, decided(cluster, "specon")) == {}
    assert moves_of(cluster, decided(cluster, "specon:most=2")) == {"done": (1,)}


def test_a_kept_job_is_looked_at_again_later() -> None:
    """DRAGON-86."""
    full = tuple(SharedJob(f"f{n}", ((1, 1),), left=800.0) for n in range(7))
    cluster = SharedCluster((*CROWD, DONE, *full))
    kept = decided(cluster, "specon")
    assert moves_of(cluster, kept) == {}
    later = replace(cluster, jobs=cluster.jobs[:8], now=kept.until)
    assert moves_of(later, decided(later, "specon")) == {"done": (1,)}


def test_a_move_that_costs_more_than_it_gains_is_not_made() -> None:
    cluster = SharedCluster((*CROWD[:4], DONE), restart_seconds=10_000.0)
    assert moves_of(cluster, decided(cluster, "specon")) == {}
    assert moves_of(cluster, decided(cluster, "specon:strict=true")) == {"done": (1,)}
    assert moves_of(cluster, decided(replace(cluster, restart_seconds=0.0), "specon")) == {"done": (1,)}


def test_converged_job_moves_only_if_it_ends_a_tenth_sooner_itself() -> None:
    """The others gain 175 s. The job would end after 200 s here, and there after 100 s and the restart."""
    cluster = SharedCluster((*CROWD, DONE), restart_seconds=75.0)
    assert moves_of(cluster, decided(cluster, "specon")) == {"done": (1,)}
    assert moves_of(cluster, decided(replace(cluster, restart_seconds=85.0), "specon")) == {}


def test_work_since_the_last_checkpoint_is_part_of_the_price() -> None:
    cluster = SharedCluster((*CROWD[:4], replace(DONE, unsaved=10_000.0)))
    assert moves_of(cluster, decided(cluster, "specon")) == {}


def test_no_job_moves_where_nodes_are_not_shared() -> None:
    jobs = tuple(replace(job, cap=float("nan")) for job in (*CROWD, DONE))
    assert moves_of(SharedCluster(jobs), decided(SharedCluster(jobs), "specon")) == {}


def test_closed_node_gets_no_job() -> None:
    cluster = SharedCluster((*CROWD, DONE), closed=frozenset({1}))
    assert moves_of(cluster, decided(cluster, "specon")) == {}
    assert moves_of(cluster, decided(cluster, "specon:strict=true")) == {}


def test_a_moved_job_names_the_one_that_gains_most() -> None:
    cluster = SharedCluster((*CROWD, DONE))
    action = decided(cluster, "specon").plan.actions[0]
    assert action.evictor in {key for key, job in enumerate(cluster.jobs) if job.name.startswith("p")}


def test_quality_counts_only_the_time_of_jobs_that_still_improve() -> None:
    """With all other jobs converged too, no time counts and no move pays."""
    settled = tuple(replace(job, growth=Growth.CONVERGED, moves=1) for job in CROWD)
    cluster = SharedCluster((*settled, DONE))
    assert moves_of(cluster, decided(cluster, "specon")) == {"done": (1,)}
    assert moves_of(cluster, decided(cluster, "specon:objective=quality")) == {}


def test_alpha_and_interval_determine_the_categories() -> None:
    """DRAGON-81."""
    for spec in ("specon", "specon:strict=true"):
        rule = make_migration(f"{spec}:alpha=0.2:interval=20").growth_rule  # type: ignore[union-attr]
        assert (rule.strict, rule.alpha, rule.interval_seconds) == (Strict.SPECON, 0.2, 20.0)
