"""Jobs that failed or were killed: rules see the planned end, and the job ends at the recorded one."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.knowledge import LEARNED, Knowledge, KnowledgeSource, make_backend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.unknown_ends import hide_early_ends
from sterna.backends.simulated.workload import workload_of
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.workloads.trace import Trace, make_trace

NODES = simulated_nodes("1x1")


def jobs(*rows: tuple[float, float, str], category: str = "") -> Trace:
    """Make a trace of one-device jobs (submit, duration, status)."""
    submit, duration, status = zip(*rows, strict=True)
    names = [f"job-{number}" for number in range(len(rows))]
    return make_trace(
        name=names,
        submit_seconds=submit,
        workers=[1] * len(rows),
        duration_seconds=duration,
        status=status,
        category=[category] * len(rows),
    )


def hidden_work(trace: Trace, seed: int) -> list[float]:
    hidden = hide_early_ends(workload_of(trace), trace, seed).unplanned_work
    assert hidden is not None
    work: list[float] = hidden.tolist()
    return work


KILLED_EARLY = jobs((0, 50, "completed"), (0, 10, "killed"), (0, 400, "completed"))


def test_a_killed_job_is_planned_to_last_as_long_as_a_longer_completed_one() -> None:
    assert {tuple(hidden_work(KILLED_EARLY, seed)) for seed in range(9)} == {(0, 40, 0), (0, 390, 0)}


def test_a_job_that_outlived_all_completed_ones_is_planned_to_end_when_it_did() -> None:
    trace = jobs((0, 50, "completed"), (0, 60, "failed"))
    assert hidden_work(trace, seed=0) == [0, 0]


def test_a_trace_without_failures_is_replayed_as_before() -> None:
    trace = jobs((0, 50, ""), (0, 60, "Pass"))
    assert hide_early_ends(workload_of(trace), trace, seed=0).unplanned_work is None


def test_rules_see_the_planned_work_and_the_job_ends_at_its_recorded_time() -> None:
    trace = jobs((0, 10, "killed"), (0, 100, "completed"))
    backend = SimulatedBackend(hide_early_ends(workload_of(trace), trace, seed=0), NODES)
    assert backend.observe().jobs.remaining.tolist() == [100, 100]
    result = run_simulation(Scenario(trace, NODES), "fifo")
    assert result.times.finish.tolist() == [10, 110]


def test_shortest_first_does_not_foresee_that_a_job_will_be_killed() -> None:
    trace = jobs((0, 10, "killed"), (0, 30, "completed"), (0, 60, "completed"), (0, 5, "completed"))
    seed = next(seed for seed in range(20) if hidden_work(trace, seed)[0] == 50)
    unknown = run_simulation(Scenario(trace, NODES, seed=seed), "srjf").times.finish
    known = run_simulation(Scenario(trace, NODES, seed=seed, known_ends=True), "srjf").times.finish
    assert known.tolist() == [15, 45, 105, 5]
    assert unknown[0] > unknown[1]


@pytest.mark.parametrize("knowledge", [LEARNED, Knowledge(KnowledgeSource.NOISY, 0.0)])
def test_incomplete_knowledge_is_of_the_planned_work(knowledge: Knowledge) -> None:
    trace = jobs((0, 10, "killed"), (0, 100, "completed"))
    result = run_simulation(Scenario(trace, NODES, knowledge=knowledge), "fifo")
    assert result.times.finish.tolist() == [10, 110]
    backend = make_backend(knowledge, hide_early_ends(workload_of(trace), trace, seed=0), NODES)
    assert len(set(backend.observe().jobs.remaining.tolist())) == 1


def test_learned_knowledge_of_a_job_that_has_not_begun_does_not_depend_on_its_length() -> None:
    def remaining(second_seconds: float) -> list[float]:
        trace = jobs((0, 100, ""), (0, second_seconds, ""))
        backend = make_backend(LEARNED, workload_of(trace), NODES)
        column: list[float] = backend.observe().jobs.remaining.tolist()
        return column

    assert np.allclose(remaining(10), remaining(10_000))
