"""`sterna compare`: the baseline, the ratios, the table and the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.engine.registry import RuleKind
from sterna.settings import BASELINE_POLICY
from sterna.wiring import rules_of
from tests.unit.cli.conftest import Sterna


def test_all_policies_are_compared_with_the_baseline(sterna: Sterna, trace: Path) -> None:
    run = sterna("compare", "--trace", trace, "--nodes", "1x8", "--cores", "1", "--json")
    assert run.code == 0
    policies = [result["policy"] for result in run.document["results"]]
    assert policies == [BASELINE_POLICY, *(info.name for info in rules_of(RuleKind.POLICY))]
    assert {"easy", "conservative", "fifo", "srjf", "tiresias"} <= set(policies)


def test_ratios_are_relative_to_the_baseline(sterna: Sterna, trace: Path) -> None:
    asked = ("compare", "--trace", trace, "--nodes", "1x8", "--cores", "1", "--json", "--policies", "srjf")
    document = sterna(*asked).document
    assert document["baseline"] == BASELINE_POLICY
    baseline, srjf = document["results"]
    assert set(baseline["ratios"].values()) == {1.0}
    assert srjf["ratios"]["avg_jct_s"] == pytest.approx(srjf["avg_jct_s"] / baseline["avg_jct_s"], abs=1e-5)
    assert document["best"]["avg_jct_s"] == "srjf"


def test_the_baseline_appears_once_however_it_is_written(sterna: Sterna, trace: Path) -> None:
    asked = ("compare", "--trace", trace, "--nodes", "1x8", "--cores", "1", "--json", "--policies")
    document = sterna(*asked, "FIFO:preempt=no:backfill=yes,srjf,srjf").document
    assert [result["policy"] for result in document["results"]] == [BASELINE_POLICY, "srjf"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons dislike a fork where pytest has threads
def test_side_by_side_gives_the_same_numbers(sterna: Sterna, trace: Path) -> None:
    asked = ("compare", "--trace", trace, "--nodes", "1x8", "--json", "--policies", "srjf", "--cores")
    alone, together = (sterna(*asked, cores).document for cores in ("1", "2"))
    for document in (alone, together):
        for result in document["results"]:
            del result["wall_s"]
    assert alone == together


def test_the_table_marks_the_best_and_names_the_baseline(sterna: Sterna, trace: Path) -> None:
    run = sterna("compare", "--trace", trace, "--nodes", "1x8", "--cores", "1")
    assert run.code == 0
    assert "*" in run.out
    text = " ".join(run.out.split())
    assert f"over that of {BASELINE_POLICY}, what people run today" in text
    table = [line for line in run.out.splitlines() if not line.startswith(str(trace))]
    assert max(map(len, table)) <= 100
    assert "\x1b" not in run.out


def test_a_tie_of_all_is_not_marked_and_a_tie_of_some_is(sterna: Sterna, trace: Path) -> None:
    asked = ("compare", "--trace", trace, "--cores", "1", "--policies")
    equal = sterna(*asked, "fifo", "--nodes", "4x8")
    assert "*" not in equal.out
    assert sterna(*asked, "fifo", "--nodes", "4x8", "--json").document["best"] == {}
    some = sterna(*asked, "fifo,srjf", "--nodes", "2x4").out.splitlines()
    makespans = [line.split()[6] for line in some if "%" in line][:3]
    assert [cell.endswith("*") for cell in makespans] == [True, True, False]


def test_one_job_is_singular(sterna: Sterna, trace: Path) -> None:
    out = sterna(
        "compare", "--trace", trace, "--nodes", "1x8", "--cores", "1", "--policies", "fifo", "--limit", "1"
    ).out
    assert f"{trace}: 1 job on 1 node" in out


def test_the_page_shows_every_policy_and_needs_no_network(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "policies.html"
    asked = ("compare", "--trace", trace, "--nodes", "1x8", "--cores", "1", "--policies", "srjf,ffdl", "--report", out)
    assert sterna(*asked).code == 0
    page = out.read_text()
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    assert len(page) < 6_000_000
    for policy in (BASELINE_POLICY, "srjf", "ffdl"):
        assert page.count(f'"name":"{policy}"') == 4
    for heading in ("Mean and 95th percentile", "Completion times", "Utilisation", "Queue", "Allocation"):
        assert f"<h2>{heading}</h2>" in page
    assert "what people run today" in page
