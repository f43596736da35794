"""Metrics of a run: worked cases, and sums that agree with the counters of the simulator."""

from __future__ import annotations

import pytest

from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.experiments.metrics.held_spans import LossCause
from sterna.experiments.metrics.run_metrics import RunMetrics
from sterna.experiments.result import Result
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.workloads.generate import Mix, poisson
from sterna.workloads.speedup_assumption import parse_speedup
from sterna.workloads.trace import Trace, make_trace

HOUR = 3600


def jobs(*rows: tuple[float, int, float], devices_per_worker: list[float] | None = None) -> Trace:
    """Make a trace of (submit, workers, duration)."""
    submit, workers, duration = zip(*rows, strict=True)
    names = [f"job-{number}" for number in range(len(rows))]
    return make_trace(
        name=names,
        submit_seconds=submit,
        workers=workers,
        duration_seconds=duration,
        devices_per_worker=devices_per_worker,
    )


def run(trace: Trace, nodes: str, policy: str, costs: Costs | None = None, *faults: Fault) -> tuple[Result, RunMetrics]:
    scenario = Scenario(
        trace, simulated_nodes(nodes), costs=costs or Costs(), faults=faults, speedup=parse_speedup("linear")
    )
    result = run_simulation(scenario, policy)
    assert result.metrics is not None
    return result, result.metrics


def test_slowdown_is_completion_time_over_run_time_alone() -> None:
    _, metrics = run(jobs((0, 4, 100), (0, 4, 50)), "1x4", "fifo")
    assert metrics.slowdown.tolist() == [1.0, 3.0]


def test_a_start_that_every_run_needs_slows_no_job_down() -> None:
    _, metrics = run(jobs((0, 4, 100)), "1x4", "fifo", Costs(restart_seconds=30))
    assert metrics.slowdown.tolist() == [1.0]
    assert metrics.lost.total == 0
    assert metrics.lost.pauses[LossCause.FIRST_START] == pytest.approx(4 * 30 / HOUR)


def test_two_equal_jobs_that_each_hold_half_are_treated_fairly() -> None:
    _, metrics = run(jobs((0, 2, 100), (0, 2, 100)), "1x4", "fifo")
    assert metrics.fairness.tolist() == [1.0, 1.0]


def test_the_second_of_two_whole_cluster_jobs_gains_nothing_by_sharing() -> None:
    # Until 100 s there are two jobs, then one: a mean of 1.5 for the second, which takes 150 s with 1/1.5 of the time.
    _, metrics = run(jobs((0, 4, 100), (0, 4, 100)), "1x4", "fifo")
    assert metrics.fairness.tolist() == [pytest.approx(100 / 200), pytest.approx(200 / 150)]


def test_a_stop_costs_the_pause_of_the_next_start_and_the_lost_work() -> None:
    trace = jobs((0, 4, 1000), (500, 4, 10))
    _, metrics = run(trace, "1x4", "srjf", Costs(restart_seconds=30))
    assert metrics.lost.pauses[LossCause.STOP] == pytest.approx(4 * 30 / HOUR)
    assert metrics.lost.total == pytest.approx(4 * 30 / HOUR)
    assert metrics.lost_device_seconds.tolist() == pytest.approx([4 * 30, 0])


def test_a_lost_node_is_the_cause_of_the_restart_after_it() -> None:
    _, metrics = run(jobs((0, 4, 100)), "1x4", "fifo", Costs(restart_seconds=10), Fault(0, 50.0, 20.0))
    assert metrics.lost.pauses[LossCause.FAILURE] == pytest.approx(4 * 10 / HOUR)
    assert metrics.lost.pauses[LossCause.STOP] == 0


def test_device_time_on_several_nodes_is_counted_as_across_nodes() -> None:
    _, metrics = run(jobs((0, 8, 100), (100, 4, 100)), "2x4", "fifo")
    assert metrics.cross_node_share == pytest.approx(800 / 1200)


def test_free_devices_on_two_nodes_are_fragmented_for_a_worker_that_needs_both() -> None:
    # Until 100 s, one device is free on each node and the third job waits for two on one node.
    trace = jobs((0, 1, 100), (0, 1, 100), (0, 1, 100), devices_per_worker=[3, 3, 2])
    _, metrics = run(trace, "2x4", "fifo")
    assert metrics.fragmentation == pytest.approx(2 * 100 / (2 * 100 + 6 * 100))


def test_a_job_that_needs_more_than_what_is_free_does_not_make_it_fragmented() -> None:
    trace = jobs((0, 1, 100), (0, 1, 100), devices_per_worker=[3, 2])
    _, metrics = run(trace, "1x4", "fifo")
    assert metrics.fragmentation == 0


def test_counting_devices_only_has_no_nodes_to_measure() -> None:
    trace = jobs((0, 8, 100))
    result = run_simulation(Scenario(trace, simulated_nodes("2x4"), placement="none"), "fifo")
    assert result.metrics is not None
    assert (result.metrics.cross_node_share, result.metrics.fragmentation) == (None, None)
    assert result.summary["cross_node_share"] is None


@pytest.mark.parametrize("policy", ["srjf", "afs-l", "elastic-tiresias"])
@pytest.mark.parametrize("rescale_seconds", [None, 5.0])
def test_losses_and_work_add_up_to_the_device_time_held(policy: str, rescale_seconds: float | None) -> None:
    mix = Mix(mean_duration_seconds=600, workers={1: 3.0, 2: 1.0, 4: 1.0}, models={}, least=1, most=4)
    trace = poisson(jobs=60, seed=3, mean_gap_seconds=60, mix=mix)
    costs = Costs(restart_seconds=30, rescale_seconds=rescale_seconds)
    result, metrics = run(trace, "2x4", policy, costs)
    work = float((trace.workers * trace.duration_seconds).sum())  # linear speed-up: a device-second is a second of work
    lost = sum(metrics.lost.pauses) * HOUR + sum(metrics.lost.work) * HOUR
    assert result.counts.device_seconds == pytest.approx(work + lost)


def test_size_classes_hold_every_job_once() -> None:
    result, metrics = run(jobs((0, 1, 10), (0, 2, 10), (0, 8, 10), (0, 16, 10)), "4x8", "fifo")
    by_size = metrics.by_size(result.times)
    assert {name: row["jobs"] for name, row in by_size.items()} == {"1": 1, "2-4": 1, "5-8": 1, ">8": 1}


def test_every_job_has_its_metrics_in_the_table_of_jobs() -> None:
    result, _ = run(jobs((0, 4, 100), (0, 4, 50), (0, 99, 1)), "1x4", "fifo")
    columns = result.jobs("columns")
    assert columns["slowdown"] == [1.0, 3.0, None]
    assert set(columns) >= {"fairness", "lost_device_s"}
