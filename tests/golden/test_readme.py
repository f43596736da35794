"""The table of policies in the README is what its command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.backends.simulated.costs import Costs
from sterna.experiments.comparison import parse_policies, run_comparison
from sterna.experiments.scenario import Scenario
from sterna.wiring import simulated_nodes
from sterna.workloads.formats import load_trace

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| \[?`([^`]+)`.*? \| ([\d,]+) \| \**([\d.]+)\** \| ([\d,]+) \|$", re.MULTILINE)


@pytest.mark.slow
def test_the_readme_shows_what_its_command_prints() -> None:
    """`sterna compare --trace cluster04.csv --limit 1000 --nodes 80x8 --elastic 1x:4x --restart-cost 30`."""
    trace = ROOT.parent / "shared" / "data" / "itp" / "cluster04.csv"
    if not trace.is_file():
        pytest.skip("the published trace is not at hand")
    jobs = load_trace(trace).take(range(1000)).elastic(1.0, 4.0)
    comparison = run_comparison(
        Scenario(jobs, simulated_nodes("80x8"), costs=Costs(30.0)), parse_policies("all"), cores=1
    )
    printed = {
        (
            each.policy,
            each.format_number("avg_jct_s"),
            f"{comparison.ratio(each, 'avg_jct_s'):.3f}",
            each.format_number("resizes"),
        )
        for each in comparison.results
    }
    assert set(ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))) == printed
