"""Properties of the price: what changes cost is bounded under every policy, and no unsaved work is thrown away."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.backends.simulated.costs import Costs
from sterna.engine.priced_policy import LOSS_SHARE
from sterna.engine.registry import RuleKind
from sterna.model.plan import ActionKind
from sterna.wiring import rules_of
from tests.builders import AJob, ClusterSpec, a_job, after, decided
from tests.properties.clusters import NOW, a_cluster, snapshot_of
from tests.simulation.runs import a_run

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
every_policy = pytest.mark.parametrize("policy", POLICIES)
seeds = st.integers(0, 10_000)

CHANGES = {ActionKind.STOP, ActionKind.SHRINK, ActionKind.GROW, ActionKind.MIGRATE}


def a_priced_cluster(seed: int, jobs: int = 8, nodes: int = 3) -> ClusterSpec:
    """A random cluster whose changes cost something, with jobs that cannot save, failed, wait for their back-off, or
    resize in place."""
    random = Random(seed)
    cluster = a_cluster(seed, jobs, nodes, "stay")
    priced = tuple(
        replace(
            job,
            unsaved=random.choice((0.0, 0.0, 20.0)),
            can_save=random.random() < 0.7,
            resize_seconds=random.choice((float("nan"), float("nan"), 0.5)),
            spent=random.choice((0.0, 0.0, 50.0)),
            may_preempt=bool(job.on) or random.random() < 0.8,
            not_before=NOW + 50 if not job.on and random.random() < 0.2 else job.not_before,
        )
        for job in cluster.jobs
    )
    return replace(cluster, jobs=priced, restart_seconds=random.choice((1.0, 10.0, 60.0)))


@every_policy
@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_deciding_again_on_a_priced_outcome_changes_nothing(policy: str, seed: int) -> None:
    snapshot = snapshot_of(a_priced_cluster(seed))
    first = decided(snapshot, policy)
    assert decided(after(snapshot, first.decision), policy).actions == []


@every_policy
@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_no_job_that_cannot_save_is_changed_and_no_change_is_free(policy: str, seed: int) -> None:
    snapshot = snapshot_of(a_priced_cluster(seed))
    jobs, nodes = snapshot.jobs, snapshot.nodes
    for action in decided(snapshot, policy).decision.plan:
        is_within = jobs.minimum[action.row] <= jobs.workers[action.row] <= jobs.maximum[action.row]
        if action.kind not in CHANGES or not is_within or snapshot.free_units < 0 or not nodes.is_open.all():
            continue
        resizes = action.kind is not ActionKind.STOP and jobs.resize_seconds[action.row] > 0
        assert jobs.can_save[action.row] or resizes
        assert action.price > 0


@every_policy
@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_no_job_starts_before_its_back_off_ends(policy: str, seed: int) -> None:
    snapshot = snapshot_of(a_priced_cluster(seed))
    started = [a.row for a in decided(snapshot, policy).decision.plan if a.kind is ActionKind.START]
    assert not (snapshot.jobs.not_before[started] > snapshot.now).any()


def some_jobs(random: Random, count: int = 40) -> list[AJob]:
    """Jobs of very different length and size, more than a cluster of 16 devices serves at once."""
    jobs = []
    for number in range(count):
        minimum = random.choice((1, 1, 2, 4, 8))
        jobs.append(
            a_job(
                f"j{number:02d}",
                (minimum, minimum * random.choice((1, 1, 2, 4))),
                submit=random.uniform(0, 4000),
                remaining=minimum * random.choice((60.0, 300.0, 1800.0, 7200.0)),
                speedup=random.choice((None, tuple(float(n**0.8) for n in range(1, 33)))),
            )
        )
    return jobs


@every_policy
@given(seed=seeds)
@settings(max_examples=5, deadline=None)
def test_device_time_lost_to_changes_is_a_small_share_of_device_time_used(policy: str, seed: int) -> None:
    run = a_run(some_jobs(Random(seed)), "2x8", policy, costs=Costs(restart_seconds=60, checkpoint_seconds=100))
    assert all(finish < float("inf") for finish in run.finish.values())
    assert sum(run.backend.states.spent) <= LOSS_SHARE * run.backend.counters.device_seconds


@every_policy
@given(seed=seeds)
@settings(max_examples=5, deadline=None)
def test_jobs_that_cannot_save_lose_no_work(policy: str, seed: int) -> None:
    run = a_run(some_jobs(Random(seed)), "2x8", policy, costs=Costs(restart_seconds=30, can_save=0.5))
    assert run.backend.counters.lost_seconds == 0
