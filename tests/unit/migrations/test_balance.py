"""Balance: moves off overloaded nodes, and of converged jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.model.growth import Growth, Strict
from sterna.wiring import make_migration
from tests.shared_nodes import SharedCluster, SharedJob, decided, moves_of

JOBS = tuple(SharedJob(f"c{number}", left=800.0) for number in range(8))
THREE = (16.0, 16.0, 16.0)


@pytest.mark.parametrize("rule", ["balance", "balance:strict=true"])
def test_a_job_of_an_overloaded_node_moves_to_the_least_loaded(rule: str) -> None:
    """DRAGON-64, 65, 70."""
    some = tuple(SharedJob(f"s{n}", ((1, 1),), left=800.0) for n in range(2))
    cluster = SharedCluster((*JOBS, *some), cores=THREE)
    assert list(moves_of(cluster, decided(cluster, rule)).values()) == [(2,)]


@pytest.mark.parametrize("rule", ["balance", "balance:strict=true"])
def test_no_job_moves_where_all_nodes_are_alike(rule: str) -> None:
    """DRAGON-70: the source is among the best, so that the request is dropped and leaves nothing behind (DRAGON-75)."""
    other = tuple(replace(job, name=f"d{n}", on=((1, 1),)) for n, job in enumerate(JOBS))
    cluster = SharedCluster((*JOBS, *other))
    decision = decided(cluster, rule)
    assert len(decision.plan) == 0


def test_the_threshold_counts_standard_deviations() -> None:
    """DRAGON-64: loads 8, 4, 0 are at most 1.22 population standard deviations above their mean."""
    some = tuple(SharedJob(f"s{n}", ((1, 1),), left=800.0) for n in range(4))
    cluster = SharedCluster((*JOBS, *some), cores=THREE)
    assert moves_of(cluster, decided(cluster, "balance:threshold=1.2")) != {}
    assert moves_of(cluster, decided(cluster, "balance:threshold=1.3")) == {}


def test_a_converged_job_asks_to_leave_wherever_it_sits() -> None:
    """DRAGON-65: no node is overloaded by that threshold, but one job has converged."""
    done = SharedJob("done", growth=Growth.CONVERGED, left=800.0)
    cluster = SharedCluster((*JOBS, done))
    assert moves_of(cluster, decided(cluster, "balance:threshold=9")) == {"done": (1,)}
    assert moves_of(cluster, decided(cluster, "balance:threshold=9:growth=false")) == {}


def test_a_job_moves_three_times_in_its_life() -> None:
    """DRAGON-73."""
    tired = tuple(replace(job, moves=3) for job in JOBS)
    cluster = SharedCluster(tired)
    assert moves_of(cluster, decided(cluster, "balance")) == {}
    fresh = SharedCluster((*tired[:7], replace(JOBS[7], moves=2)))
    assert moves_of(fresh, decided(fresh, "balance")) == {"c7": (1,)}


def test_requests_are_judged_one_by_one() -> None:
    """DRAGON-75: the second move waits until the first has been seen."""
    cluster = SharedCluster(JOBS)
    first = decided(cluster, "balance")
    assert len(first.plan) == 1
    assert first.until == cluster.now + 10
    then = cluster.after(first, 10.0)
    assert len(decided(then, "balance").plan) == 1


def test_nothing_is_moved_that_costs_more_than_it_gains() -> None:
    cluster = SharedCluster(JOBS, restart_seconds=10_000.0)
    assert moves_of(cluster, decided(cluster, "balance")) == {}
    assert moves_of(cluster, decided(cluster, "balance:priced=false")) != {}


def test_no_job_leaves_a_node_with_cores_for_all() -> None:
    cluster = SharedCluster(JOBS[:3])
    assert moves_of(cluster, decided(cluster, "balance")) == {}


def test_no_job_is_moved_beyond_what_the_guard_allows() -> None:
    """Sixteen jobs that end after 800 s: the one that moves ends after 830 s, and is due after 824 s."""
    jobs = (*JOBS, *(replace(job, name=f"d{n}") for n, job in enumerate(JOBS)))
    due = tuple(replace(job, default_finish=880.0) for job in jobs)
    cluster, free = SharedCluster(due, restart_seconds=630.0), SharedCluster(jobs, restart_seconds=630.0)
    assert moves_of(cluster, decided(cluster, "balance:margin=1")) == {}
    assert moves_of(free, decided(free, "balance:margin=1")) != {}


def test_moved_job_ends_at_most_five_percent_later_than_without_the_move() -> None:
    """Sixteen jobs that end after 800 s: with these restarts the one that moves ends after 830 or 860 s."""
    jobs = (*JOBS, *(replace(job, name=f"d{n}") for n, job in enumerate(JOBS)))
    for restart_seconds, moves in ((630.0, 1), (660.0, 0)):
        cluster = SharedCluster(jobs, restart_seconds=restart_seconds)
        assert len(moves_of(cluster, decided(cluster, "balance:margin=1"))) == moves


def test_a_worker_moves_only_where_there_is_room() -> None:
    """DRAGON-71: the jobs hold devices too, and the other node has none."""
    held = tuple(replace(job, devices=1) for job in JOBS)
    full = SharedCluster(held, devices=(8, 0))
    assert moves_of(full, decided(full, "balance")) == {}
    roomy = SharedCluster(held, devices=(8, 1))
    assert len(moves_of(roomy, decided(roomy, "balance"))) == 1


def test_strict_uses_the_published_categories() -> None:
    """DRAGON-62, 63."""
    rule = make_migration("balance:strict=true").growth_rule  # type: ignore[union-attr]
    assert rule.strict is Strict.CONTAINER_MIGRATION
