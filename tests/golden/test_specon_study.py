"""The SpeCon study on a few seeds: the published column is reproduced, and the targets of the rules hold."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.experiments.reproduction.specon.bounds import pool_finish_times
from sterna.experiments.reproduction.specon.cases import ABLATIONS, BOTH, CASES, CaseChange, change_of, run_case
from sterna.experiments.reproduction.specon.simulation import draw_experiment, run
from sterna.experiments.reproduction.specon.study import reproduce
from sterna.model.growth import Direction, History, Report
from sterna.workloads.published import specon

SEEDS = range(1000, 1004)
MISLED = next(case for case in CASES if case.is_misled)


def changes(label: str, baseline: str) -> list[CaseChange]:
    case = next(case for case in CASES if case.label == label)
    return [
        change_of(run_case(case, draw_experiment(seed), baseline, seed), run(draw_experiment(seed), baseline))
        for seed in SEEDS
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_default_scheduler_gives_back_the_published_column(seed: int) -> None:
    """DRAGON-90: without moves and shares a run is the baseline."""
    assert run(draw_experiment(seed), "count").completion == pytest.approx(specon.default_seconds(), rel=1e-9)


def test_the_published_figure_is_what_the_authors_say_of_it() -> None:
    default, ours = specon.default_seconds(), specon.specon_seconds()
    assert len(default) == len(ours) == 50
    assert 100 * (ours.mean() / default.mean() - 1) == pytest.approx(-7.3, abs=0.05)
    assert 100 * (ours[49] / default[49] - 1) == pytest.approx(-41.5, abs=0.05)
    assert (ours < default).sum() == 30


def test_no_scheduler_reaches_the_abstract_s_makespan_on_count() -> None:
    for seed in SEEDS:
        default = run(draw_experiment(seed), "count")
        assert (
            max(pool_finish_times(draw_experiment(seed).workload, longest_first=True)) > (1 - 0.247) * default.makespan
        )


@pytest.mark.parametrize("baseline", ["count", "skew"])
def test_both_together_reach_three_quarters_of_what_an_oracle_gains(baseline: str) -> None:
    """DRAGON-92."""
    both = changes(BOTH.label, baseline)
    bounds = []
    for seed in SEEDS:
        shortest = np.array(pool_finish_times(draw_experiment(seed).workload)) - draw_experiment(seed).workload.submit
        bounds.append(100 * (shortest.mean() / run(draw_experiment(seed), baseline).completion.mean() - 1))
    assert np.mean([change.mean for change in both]) <= 0.75 * np.mean(bounds)
    assert np.mean([change.best for change in both]) <= -41.5
    assert np.mean([change.worst for change in both]) <= 15
    assert np.mean([change.moves for change in both]) <= 0.5


def test_an_error_of_thirty_percent_in_the_work_costs_at_most_three_points() -> None:
    for baseline in ("count", "skew"):
        known, misled = (np.mean([c.mean for c in changes(each, baseline)]) for each in (BOTH.label, MISLED.label))
        assert misled <= known + 3


@pytest.mark.slow
def test_the_study_has_a_row_for_every_case_and_figures_for_its_report() -> None:
    told: list[tuple[int, int]] = []
    study = reproduce(1, lambda done, total: told.append((done, total)))
    cases = {row.case for row in study.rows}
    assert {f"{baseline}, {case.label}" for baseline in ("count", "skew") for case in ABLATIONS} <= cases
    assert {"count, shortest first, one pool", "skew, longest first, one pool", "skew, raw SpeCon"} <= cases
    assert {row.metric for row in study.rows if row.case == "count, both"} >= {
        "mean completion, change in %",
        "makespan, change in %",
        "time to 95 % of final quality, change in %",
        "moves a job",
    }
    abstract = {row.case: row for row in study.rows if row.metric == "makespan, change in %, as in the abstract"}
    assert (abstract["count, both"].published, abstract["count, both"].holds) == (-24.7, False)
    assert abstract["skew, both"].holds is True
    assert told[-1][0] == told[-1][1] == len(told)
    assert len(study.figures()) == 8
    assert all(np.isfinite(row.ours) for row in study.rows)


def test_growth_first_serves_quality_and_not_completion() -> None:
    by_growth = changes("shares by growth", "count")
    assert np.mean([change.quality for change in by_growth]) <= -7
    assert np.mean([change.mean for change in by_growth]) > 0


def test_a_growing_bidirectional_rnn_is_not_called_converged_before_a_finished_vae() -> None:
    """The shipped curves are as good as the measured ones for this."""

    def converged_after(model: str) -> float:
        history = History.of((), direction=Direction.FALLING)
        for step, value in enumerate(specon.losses()[model].tolist()):
            history = history.extend([Report(step, float(step), value)])
            if history.growth.name == "CONVERGED":
                return step
        return float("inf")

    assert converged_after("vae") < converged_after("birnn")
