"""Comparisons: the baseline is always included, ratios and marks are relative to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sterna.backends.simulated.nodes import simulated_nodes
from sterna.engine.registry import RuleKind
from sterna.errors import UserError
from sterna.experiments.comparison import Comparison, parse_policies, run_comparison
from sterna.experiments.report import figures
from sterna.experiments.report.page import comparison_page, simulation_page
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.settings import BASELINE_POLICY
from sterna.wiring import rules_of
from sterna.workloads.generate import Mix, poisson


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario(poisson(jobs=80, seed=5, mean_gap_seconds=30), simulated_nodes("1x8"))


@pytest.fixture(scope="module")
def comparison(scenario: Scenario) -> Comparison:
    return run_comparison(scenario, ["fifo", "srjf"], cores=1, detailed=True)


def test_the_baseline_comes_first_and_its_ratios_are_one(comparison: Comparison) -> None:
    assert [result.policy for result in comparison.results] == [BASELINE_POLICY, "fifo", "srjf"]
    assert comparison.ratio(comparison.baseline, "avg_jct_s") == 1.0


def test_the_shortest_jobs_first_are_the_best_on_average(comparison: Comparison) -> None:
    srjf = comparison.results[2]
    assert comparison.best["avg_jct_s"] == "srjf"
    assert comparison.is_best(srjf, "avg_jct_s")
    ratio = comparison.ratio(srjf, "avg_jct_s")
    assert ratio is not None
    assert ratio < 1


def test_a_list_of_policies_is_checked_and_each_is_taken_once() -> None:
    assert parse_policies(" fifo, srjf:by=time ,fifo") == ["fifo", "srjf:by=time"]
    assert parse_policies("all") == [info.name for info in rules_of(RuleKind.POLICY)]
    with pytest.raises(UserError, match="There is no policy 'sjf'"):
        parse_policies("fifo,sjf")


def test_progress_counts_policies(scenario: Scenario) -> None:
    told: list[tuple[int, int]] = []
    run_comparison(scenario, ["srjf"], cores=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_every_figure_has_a_line_for_every_policy(comparison: Comparison) -> None:
    policies = [result.policy for result in comparison.results]
    drawn = (figures.completion_figure, figures.utilization_figure, figures.queue_figure)
    for figure in (draw(comparison.results) for draw in drawn):
        assert [line.name for line in figure.data] == policies
    bars = figures.mean_figure(comparison)
    assert list(bars.data[0].x) == policies
    assert bars.data[0].text[0] == "1.00x"


def test_the_same_jobs_are_shown_under_every_policy_with_the_workers_they_held(comparison: Comparison) -> None:
    names = comparison.baseline.job_names
    panels = figures.allocations_figure(comparison.results).data
    assert [panel.name for panel in panels] == [result.policy for result in comparison.results]
    assert len({tuple(panel.y) for panel in panels}) == 1
    assert len(panels[0].y) == 20
    for result, panel in zip(comparison.results, panels, strict=True):
        cell_seconds = max(each.times.makespan_seconds for each in comparison.results) / panel.z.shape[1]
        for job, held in zip(panel.y, np.nansum(panel.z, axis=1) * cell_seconds, strict=True):
            spans = [span for span in result.spans if names[span.job] == job]
            assert held == pytest.approx(
                sum(span.workers * (span.end_seconds - span.start_seconds) for span in spans), rel=1e-5
            )


def test_one_job_is_seen_among_completion_times(scenario: Scenario) -> None:
    alone = run_simulation(replace(scenario, trace=scenario.trace.take([0])), "fifo", detailed=True)
    (line,) = figures.completion_figure([alone]).data
    assert line.y.tolist() == [0.0, 1.0]


def test_a_page_without_jobs_has_no_pictures() -> None:
    nothing_fits = Scenario(poisson(jobs=3, mix=Mix(workers={9: 1.0})), simulated_nodes("1x8"))
    page = comparison_page(run_comparison(nothing_fits, ["srjf"], cores=1, detailed=True), "")
    assert "<h2>" not in page


def test_names_cannot_break_out_of_a_page(comparison: Comparison) -> None:
    page = comparison_page(comparison, "sterna compare --trace '<script>alert(1)</script>'")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_page_of_one_policy_shows_jobs_that_held_devices(comparison: Comparison) -> None:
    page = simulation_page(comparison.results[2], "")
    assert "Allocation" in page
    assert "job-00001" in page
