"""The lower bound of the mean completion time: worked cases, and no policy ever below it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.engine.registry import RuleKind
from sterna.experiments.metrics.demand import demand_of
from sterna.experiments.metrics.lower_bound import LowerBound, lower_bound
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.wiring import rules_of
from sterna.workloads.generate import Mix, poisson
from sterna.workloads.trace import Trace, make_trace

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]


def bound_of(trace: Trace, nodes: str, restart_seconds: float = 0.0) -> LowerBound:
    workload = workload_of(trace)
    bound = lower_bound(
        trace.submit_seconds, demand_of(workload, simulated_nodes(nodes), Costs(restart_seconds=restart_seconds))
    )
    assert bound is not None
    return bound


def one_device_jobs(*seconds: float, submit: float = 0.0) -> Trace:
    count = len(seconds)
    return make_trace(
        name=[f"job-{number}" for number in range(count)],
        submit_seconds=[submit] * count,
        workers=[1] * count,
        duration_seconds=seconds,
    )


def test_jobs_that_all_fit_take_the_time_they_take_alone() -> None:
    assert bound_of(one_device_jobs(10, 20, 30), "1x4").mean_seconds == 20


def test_a_start_counts_once() -> None:
    assert bound_of(one_device_jobs(10, 20, 30), "1x4", restart_seconds=5).mean_seconds == 25


def test_on_one_device_the_shortest_job_goes_first() -> None:
    bound = bound_of(one_device_jobs(30, 10, 20, submit=100), "1x1")
    assert bound.srpt_seconds == pytest.approx((10 + 30 + 60) / 3)
    assert bound.mean_seconds == bound.srpt_seconds


def test_a_short_job_that_comes_later_interrupts_a_long_one() -> None:
    trace = make_trace(name=["long", "short"], submit_seconds=[0, 4], workers=[1, 1], duration_seconds=[10, 2])
    bound = bound_of(trace, "1x1")
    assert bound.srpt_seconds == pytest.approx((12 + 2) / 2)
    # Busy from 0 to 4 and from 6 to 12, and from 4 to 6: means 6.2 and 5, submitted at 0 and 4, ends half a job later.
    assert bound.busy_time_seconds == pytest.approx((6.2 + 1) / 2 + (5 + 1) / 2)


def test_waiting_one_device_jobs_end_half_a_job_after_their_mean_busy_time() -> None:
    bound = bound_of(one_device_jobs(*[10] * 8), "1x4")
    assert bound.alone_seconds == 10
    assert bound.srpt_seconds == pytest.approx(2.5 * 4.5)
    assert bound.busy_time_seconds == pytest.approx(2.5 * 4 + 5)


def test_an_elastic_job_alone_uses_all_devices_that_it_may() -> None:
    trace = one_device_jobs(100).elastic(1, 8)
    assert bound_of(trace, "1x4").mean_seconds == 25


def test_no_jobs_have_no_bound() -> None:
    trace = one_device_jobs(1)
    demand = demand_of(workload_of(trace), simulated_nodes("1x1"), Costs())
    assert lower_bound(np.zeros(0), demand.take(np.zeros(1, dtype=np.bool_))) is None


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    seed=st.integers(0, 10_000),
    jobs=st.integers(1, 40),
    nodes=st.sampled_from(["1x4", "2x4", "4x8", "3x2,1x8"]),
    gap_seconds=st.sampled_from([0.1, 20.0, 300.0]),
    spread=st.sampled_from([0.0, 1.0, 2.5]),
    elastic=st.sampled_from([(1.0, 1.0), (1.0, 4.0), (0.5, 2.0)]),
    has_models=st.booleans(),
    restart_seconds=st.sampled_from([0.0, 30.0, 300.0]),
    penalty=st.sampled_from([0.0, 0.2]),
)
def test_no_policy_is_below_the_bound(
    policy: str,
    seed: int,
    jobs: int,
    nodes: str,
    gap_seconds: float,
    spread: float,
    elastic: tuple[float, float],
    has_models: bool,
    restart_seconds: float,
    penalty: float,
) -> None:
    models = {} if not has_models else {"vgg16": 1.0, "bert": 1.0, "resnet50": 1.0}
    mix = Mix(
        mean_duration_seconds=600,
        duration_spread=spread,
        workers={1: 3.0, 2: 1.0, 4: 1.0},
        models=models,
        least=elastic[0],
        most=elastic[1],
    )
    trace = poisson(jobs=jobs, seed=seed, mean_gap_seconds=gap_seconds, mix=mix)
    costs = Costs(restart_seconds=restart_seconds, cross_node_penalty=penalty)
    result = run_simulation(Scenario(trace, simulated_nodes(nodes), costs=costs), policy)
    bound = result.lower_bound
    assert bound is not None
    assert result.times.completion.mean() >= bound.mean_seconds * (1 - 1e-9)
