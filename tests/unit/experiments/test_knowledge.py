"""Learned and noisy knowledge: the study has a row for each policy and case, and its target holds for later jobs."""

from __future__ import annotations

import pytest

from sterna.backends.simulated.knowledge import LEARNED, Knowledge, KnowledgeSource
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.experiments.comparison import run_comparison
from sterna.experiments.reproduction.knowledge import CASES, POLICIES, reproduce
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.workloads.generate import poisson


@pytest.mark.slow
def test_later_jobs_lose_less_than_the_target_and_every_case_has_a_row() -> None:
    rows = reproduce(2).rows
    assert len(rows) == len(POLICIES) * len(CASES)
    targets = [row for row in rows if row.target is not None]
    assert len(targets) == len(POLICIES)
    assert all(row.holds for row in targets)


@pytest.mark.parametrize("knowledge", [LEARNED, Knowledge(KnowledgeSource.NOISY, 0.3)])
def test_result_names_the_knowledge_and_is_reproducible(knowledge: Knowledge) -> None:
    trace = poisson(jobs=60, seed=4, mean_gap_seconds=30).elastic(1, 4)
    scenario = Scenario(trace, simulated_nodes("2x8"), seed=3, knowledge=knowledge)
    first, again, truth = (
        run_simulation(each, "afs-l").summary | {"wall_s": 0}
        for each in (scenario, scenario, Scenario(trace, simulated_nodes("2x8"), seed=3))
    )
    assert first == again
    assert first["knowledge"] == str(knowledge)
    assert truth["knowledge"] == "true"
    assert first["avg_jct_s"] != truth["avg_jct_s"]
    assert first["jobs"] == 60


def test_all_policies_of_a_comparison_have_the_same_knowledge() -> None:
    scenario = Scenario(poisson(jobs=30, seed=4), simulated_nodes("1x8"), knowledge=LEARNED)
    summaries = [result.summary for result in run_comparison(scenario, ["srjf", "ffdl"], cores=1).results]
    assert [summary["knowledge"] for summary in summaries] == ["learned"] * 3
