"""Results of a simulation: finish times, spans and timeline, faults of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.backends.simulated.costs import Fault
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.errors import UserError
from sterna.experiments.faults import draw_faults, merge_faults, parse_fault
from sterna.experiments.report.allocation import Span
from sterna.experiments.report.figures import largest_spans
from sterna.experiments.report.jobs_table import jobs_table
from sterna.experiments.report.timeline import MOST_POINTS, timeline_of
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.workloads.generate import poisson
from sterna.workloads.trace import Trace, make_trace


def a_trace(*jobs: tuple[str, float, int, float]) -> Trace:
    name, submit, workers, duration = zip(*jobs, strict=True)
    return make_trace(name=name, submit_seconds=submit, workers=workers, duration_seconds=duration)


def a_scenario(*jobs: tuple[str, float, int, float], nodes: str = "1x4", faults: tuple[Fault, ...] = ()) -> Scenario:
    return Scenario(a_trace(*jobs), simulated_nodes(nodes), faults=faults)


def test_a_stopped_job_is_seen_in_its_spans_and_stops() -> None:
    scenario = a_scenario(("long", 0, 4, 100), ("short", 10, 4, 5))
    result = run_simulation(scenario, "srjf", detailed=True)
    assert list(result.spans) == [Span(0, 0, 10, 4), Span(1, 10, 15, 4), Span(0, 15, 105, 4)]
    assert result.times.stops is not None
    assert result.times.stops.tolist() == [1, 0]
    assert result.times.wait.tolist() == [5, 0]


def test_a_span_ends_when_its_node_is_lost() -> None:
    scenario = a_scenario(("a", 0, 4, 100), faults=(Fault(0, 20, 30),))
    result = run_simulation(scenario, "fifo", detailed=True)
    assert list(result.spans) == [Span(0, 0, 20, 4), Span(0, 50, 130, 4)]
    assert result.counts.failures == 1


def test_a_span_of_a_job_that_never_finishes_ends_as_well() -> None:
    scenario = a_scenario(("a", 0, 4, 100), ("b", 1, 2, 10), nodes="1x4,1x2", faults=(Fault(0, 20),))
    result = run_simulation(scenario, "fifo", detailed=True)
    assert result.unfinished == ("a",)
    assert Span(0, 0, 20, 4) in result.spans
    assert result.summary["jobs"] == 1


def test_details_do_not_change_the_numbers() -> None:
    scenario = Scenario(poisson(jobs=60, seed=4, mean_gap_seconds=30).elastic(1, 4), simulated_nodes("2x8"))
    plain, detailed = (run_simulation(scenario, "elastic-fifo", detailed=each) for each in (False, True))
    assert plain.summary | {"wall_s": 0} == detailed.summary | {"wall_s": 0}


def test_held_device_time_is_the_area_under_the_timeline_and_the_spans() -> None:
    scenario = Scenario(poisson(jobs=40, seed=1, mean_gap_seconds=60).elastic(1, 4), simulated_nodes("2x8"))
    result = run_simulation(scenario, "elastic-srjf", detailed=True)
    line = result.timeline
    assert line is not None
    under_line = float((line.devices_used[:-1] * np.diff(line.times)).sum())
    under_spans = sum(span.workers * (span.end_seconds - span.start_seconds) for span in result.spans)
    assert under_line == pytest.approx(result.counts.device_seconds)
    assert under_spans == pytest.approx(result.counts.device_seconds)


def test_progress_counts_jobs() -> None:
    told: list[tuple[int, int]] = []
    scenario = Scenario(poisson(jobs=400, seed=2), simulated_nodes("4x8"))
    run_simulation(scenario, "fifo", progress=lambda done, total: told.append((done, total)))
    assert told
    assert all(0 <= done <= total == 400 for done, total in told)


def test_the_table_of_jobs_has_a_row_for_each() -> None:
    scenario = a_scenario(("a", 0, 4, 100), ("huge", 1, 5, 10))
    lines = jobs_table(run_simulation(scenario, "fifo", detailed=True)).splitlines()
    assert lines[0] == (
        "job,submit_s,start_s,finish_s,jct_s,wait_s,workers,min_workers,max_workers,gpus_per_worker,preemptions,state,"
        "model,user,pool,slowdown,fairness,lost_device_s"
    )
    assert lines[1].startswith("a,0,0,100,100,0,4,4,4,1,0,finished")
    assert lines[2].startswith("huge,1,,,,,5,5,5,1,,unschedulable")


def test_a_long_timeline_is_reduced_and_keeps_its_area() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(1.0, 20_000)).tolist()
    used = [float(number % 7) for number in range(20_000)]
    line = timeline_of(times, used, [1] * 20_000)
    assert len(line.times) == MOST_POINTS
    step = (times[-1] - times[0]) / MOST_POINTS
    area = float((np.array(used[:-1]) * np.diff(times)).sum())
    assert float(line.devices_used.sum()) * step == pytest.approx(area)
    assert line.jobs_waiting.tolist() == pytest.approx([1.0] * MOST_POINTS)


def test_only_the_largest_jobs_are_drawn() -> None:
    spans = [Span(job, 0, job + 1, 1) for job in range(100)]
    assert {span.job for span in largest_spans(spans)} == set(range(40, 100))


def test_a_fault_is_named_by_node_or_number() -> None:
    nodes = simulated_nodes("12x8")
    assert parse_fault("node03@10+5", nodes) == parse_fault(" 3@10+5 ", nodes) == Fault(3, 10, 5)
    assert parse_fault("node03@1e3", nodes) == Fault(3, 1000)
    for text in ("node03", "node03@", "node03@x", "node03@1+", "node03@1+x", "12@1", "@1", "node3@nan"):
        with pytest.raises(UserError):
            parse_fault(text, nodes)


def test_faults_of_one_node_that_overlap_are_one() -> None:
    faults = [Fault(1, 50, 10), Fault(0, 40, 5), Fault(1, 0, 100), Fault(1, 100, 20), Fault(2, 0, 10)]
    assert merge_faults(faults, 20.0) == (Fault(1, 20, 100), Fault(0, 40, 5))
    assert merge_faults([Fault(0, 5), Fault(0, 9, 1)], 0.0) == (Fault(0, 5),)


def test_drawn_faults_outlast_the_simulation() -> None:
    trace = poisson(jobs=50, seed=3)
    nodes = simulated_nodes("2x8")
    faults = draw_faults(trace, nodes, 2000.0, 100.0, seed=1)
    result = run_simulation(Scenario(trace, nodes, faults=merge_faults(faults, 0.0), seed=1), "fifo")
    assert result.counts.failures > 0
    assert faults[-1].at_seconds > result.times.makespan_seconds
