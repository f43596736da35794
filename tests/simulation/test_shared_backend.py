"""The simulator of CPU-shared nodes: division of cores, cost of moves, growth from work done, equal-share baseline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.backends.simulated.config import SharedConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.shared.backend import SharedBackend, shared_nodes
from sterna.backends.simulated.shared.workload import GrowthCurves, SharedWorkload
from sterna.control.round_loop import RoundLoop
from sterna.engine.cpu_sharing.forecast import max_min
from sterna.model.cluster import Assignment
from sterna.model.growth import Growth
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.snapshot import JobKey
from sterna.wiring import make_rules

FAST_THEN_FLAT = GrowthCurves(np.concatenate([np.linspace(1.0, 0.0, 21), np.zeros(80)])[None, :])


def some_jobs(*jobs: tuple[float, float], cores: float = 4.0) -> SharedWorkload:
    """Jobs of one worker from (submit, core-seconds)."""
    count = len(jobs)
    return SharedWorkload(
        tuple(f"j{number}" for number in range(count)),
        np.array([submit for submit, _ in jobs], dtype=np.float64),
        np.array([work for _, work in jobs], dtype=np.float64),
        np.full(count, cores),
        np.ones(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        FAST_THEN_FLAT,
    )


def ran(backend: SharedBackend, migration: str = "none", cpu_share: str = "equal") -> SharedBackend:
    RoundLoop(backend, make_rules("fifo", "spread", migration, cpu_share)).run()
    return backend


def backend_on_first_node(
    jobs: SharedWorkload, nodes: int = 2, cores: float = 4.0, costs: Costs | None = None
) -> SharedBackend:
    """Return a backend with all initial jobs on the first node."""
    backend = SharedBackend(jobs, shared_nodes(nodes, cores), SharedConfig(costs=costs or Costs()))
    for key in range(len(backend.observe().jobs)):
        backend.apply(Decision(Plan([Action(ActionKind.START, JobKey(key), key, Assignment(), Assignment(((0, 1),)))])))
    return backend


def move_job(backend: SharedBackend, key: int, target: int = 1) -> None:
    assignment = backend.observe().assignments[JobKey(key)]
    after = Assignment(((target, 1),))
    move = Action(ActionKind.MIGRATE, JobKey(key), key, assignment, after, evictor=JobKey(0))
    assert backend.apply(Decision(Plan([move]))) == [Outcome.APPLIED]


def test_jobs_share_a_node_and_leave_what_they_cannot_use() -> None:
    """Two jobs of 4 cores on a node of 6: 3 each, then 4 for the one that is left."""
    backend = ran(SharedBackend(some_jobs((0, 30), (0, 50)), shared_nodes(1, 6)))
    assert backend.finish.tolist() == [10, 15]


def test_a_late_comer_slows_the_others_from_then_on() -> None:
    backend = ran(SharedBackend(some_jobs((0, 40), (5, 40)), shared_nodes(1, 4)))
    assert backend.finish.tolist() == [15, 20]


def test_new_jobs_are_spread_by_count() -> None:
    """DRAGON-90: containers that ask for nothing are counted, as Kubernetes does."""
    backend = SharedBackend(some_jobs((0, 40), (0, 40), (0, 40), (1, 40)), shared_nodes(2, 16))
    RoundLoop(backend, make_rules("fifo", "spread")).round()
    backend.wait(1.0)
    RoundLoop(backend, make_rules("fifo", "spread")).round()
    assignments = backend.observe().assignments
    assert [assignments[JobKey(key)].workers[0][0] for key in range(4)] == [0, 1, 0, 1]


def test_a_share_changes_the_rate_at_once_and_restarts_nothing() -> None:
    backend = backend_on_first_node(some_jobs((0, 40), (0, 40)), costs=Costs(restart_seconds=50, checkpoint_seconds=50))
    assignment = backend.observe().assignments[JobKey(0)]
    backend.apply(
        Decision(Plan([Action(ActionKind.SET_CPU_SHARE, JobKey(0), 0, assignment, assignment, cpu_share=3.0)]))
    )
    assert backend.rate.tolist() == [3, 1]
    assert backend.observe().jobs.cpu_share.tolist() == [3, 1]
    assert backend.observe().has_cpu_shares


def test_a_move_costs_a_restart_and_the_work_since_the_checkpoint() -> None:
    """DRAGON-88: saved at 30 s, moved at 40 s, so that 10 s of 4 cores are done again after 5 s of restart."""
    backend = backend_on_first_node(some_jobs((0, 400)), costs=Costs(restart_seconds=5, checkpoint_seconds=30))
    assert backend.wait(40.0)
    assert backend.observe().jobs.unsaved.tolist() == [10]
    move_job(backend, 0)
    assert backend.counters.lost_core_seconds == 40
    while backend.wait(float("inf")):
        pass
    assert backend.finish.tolist() == [115]


def test_a_move_is_remembered_with_whence_when_and_for_whom() -> None:
    backend = backend_on_first_node(some_jobs((0, 400), (0, 400)))
    backend.wait(7.0)
    move_job(backend, 1)
    jobs = backend.observe().jobs
    assert (jobs.moves[1], jobs.moved_at[1], jobs.moved_from[1], jobs.evictor[1]) == (1, 7, 0, 0)
    assert (jobs.moves[0], jobs.moved_from[0], jobs.evictor[0]) == (0, -1, -1)


def test_action_on_a_job_with_another_assignment_is_stale() -> None:
    backend = backend_on_first_node(some_jobs((0, 400)))
    elsewhere = Action(ActionKind.MIGRATE, JobKey(0), 0, Assignment(((1, 1),)), Assignment(((0, 1),)))
    assert backend.apply(Decision(Plan([elsewhere]))) == [Outcome.STALE]


def test_work_done_drives_growth() -> None:
    """A model that has stopped improving after a fifth of its work is found out; the one that started later is not."""
    backend = backend_on_first_node(some_jobs((0, 4000), (600, 4000)), cores=8.0)
    backend.wait(600.0)
    backend.apply(Decision(Plan([Action(ActionKind.START, JobKey(1), 1, Assignment(), Assignment(((0, 1),)))])))
    backend.wait(640.0)
    jobs = backend.observe().jobs
    assert jobs.growth.tolist() == [Growth.CONVERGED, Growth.PROGRESSING]
    assert jobs.growth_since[0] > 0
    assert jobs.growth_rate[0] < jobs.growth_rate[1]


def test_quality_is_reached_at_the_point_of_the_curve() -> None:
    """95 % of the improvement is made in 19 % of the work."""
    backend = ran(SharedBackend(some_jobs((0, 400)), shared_nodes(1, 4)))
    assert backend.quality_at[0] == pytest.approx(19.0)


def test_baseline_predicts_completions_under_the_default_scheduler() -> None:
    """The second job is starved here, but in the baseline it shares the node."""
    backend = backend_on_first_node(some_jobs((0, 400), (0, 400)), nodes=1)
    assignment = backend.observe().assignments[JobKey(0)]
    backend.apply(
        Decision(Plan([Action(ActionKind.SET_CPU_SHARE, JobKey(0), 0, assignment, assignment, cpu_share=1000.0)]))
    )
    backend.wait(50.0)
    assert backend.observe().jobs.default_finish.tolist() == [200, 200]


def test_baseline_of_a_job_of_unknown_work_is_nan() -> None:
    jobs = replace(some_jobs((0, 400), (0, 400)), estimate=np.array([np.nan, 400.0]))
    backend = backend_on_first_node(jobs, nodes=1)
    assert np.isnan(backend.observe().jobs.default_finish).tolist() == [True, False]
    assert np.isnan(backend.observe().jobs.remaining).tolist() == [True, False]


def test_a_job_that_outlives_what_was_believed_is_nearly_done_to_the_rules() -> None:
    jobs = replace(some_jobs((0, 400)), estimate=np.array([200.0]))
    backend = backend_on_first_node(jobs)
    backend.wait(80.0)
    assert backend.observe().jobs.remaining.tolist() == [pytest.approx(0.5)]


@settings(max_examples=20, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 400)), min_size=1, max_size=7),
    cpu_share=st.sampled_from(["equal", "finish"]),
    migration=st.sampled_from(["none", "balance"]),
)
def test_every_job_ends_and_no_work_is_made_or_lost(
    jobs: list[tuple[int, int]], cpu_share: str, migration: str
) -> None:
    workload = some_jobs(*[(float(submit), float(work)) for submit, work in sorted(jobs)])
    backend = ran(
        SharedBackend(workload, shared_nodes(2, 4), SharedConfig(costs=Costs(restart_seconds=5, rescale_seconds=10))),
        migration,
        cpu_share,
    )
    assert np.isfinite(backend.finish).all()
    spans = np.diff([*backend.counters.times, backend.now])
    used = float((np.array(backend.counters.cores_used) * spans).sum())
    assert used == pytest.approx(workload.work.sum() + backend.counters.lost_core_seconds, rel=1e-6)
    assert max(backend.counters.cores_used) <= 8 + 1e-9


def test_equal_shares_are_what_a_loop_in_small_steps_gives() -> None:
    workload = some_jobs((0, 100), (3, 80), (4, 300), (20, 50))
    backend = ran(SharedBackend(workload, shared_nodes(1, 8)))
    left, finish, now, step = workload.work.copy(), np.full(4, np.inf), 0.0, 0.001
    while np.isinf(finish).any():
        active = [job for job in range(4) if workload.submit[job] <= now and left[job] > 0]
        for job, rate in zip(active, max_min(8, [1.0] * len(active), [4.0] * len(active)), strict=True):
            left[job] -= rate * step
        now += step
        finish[(left <= 0) & np.isinf(finish)] = now
    assert backend.finish == pytest.approx(finish, abs=0.02)
