"""`sterna simulate`: its numbers, its JSON, its files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.published import DATA
from tests.unit.cli.conftest import Sterna

KEYS = [
    "policy", "jobs", "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s", "avg_wait_s", "utilization",
    "preemptions", "migrations", "resizes", "wall_s",
]  # fmt: skip


def test_json_is_one_document_with_the_agreed_keys(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo:preempt=false", "--json")
    assert run.code == 0
    assert list(run.document)[: len(KEYS)] == KEYS
    assert run.document["policy"] == "fifo:preempt=false"
    assert run.document["unschedulable"] == []


def test_the_numbers_are_those_worked_out_by_hand(sterna: Sterna, trace: Path) -> None:
    # a and b fill the node; c starts when b ends at 51 and ends at 61; d needs all of it and waits for a until 100.
    run = sterna("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo:preempt=false", "--json")
    summary = run.document
    assert summary["avg_jct_s"] == pytest.approx((100 + 50 + 59 + 117) / 4)
    assert summary["avg_wait_s"] == pytest.approx((0 + 0 + 49 + 97) / 4)
    assert summary["makespan_s"] == 120
    assert summary["utilization"] == pytest.approx((400 + 200 + 20 + 160) / (8 * 120))
    assert summary["preemptions"] == 0


def test_a_job_that_can_never_fit_is_named_and_blocks_no_other(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "1x4", "--policy", "fifo:backfill=false", "--json")
    assert run.code == 0
    assert run.document["unschedulable"] == ["d"]
    assert run.document["jobs"] == 3


def test_a_cluster_too_small_for_every_job_is_reported(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "1x1", "--policy", "fifo", "--json")
    assert run.code == 0
    assert run.document["unschedulable"] == ["a", "b", "c", "d"]
    assert run.document["avg_jct_s"] is None
    assert sterna("simulate", "--trace", trace, "--nodes", "1x1", "--policy", "fifo").code == 0


def test_a_node_lost_for_ever_leaves_jobs_unfinished(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "2x4", "--policy", "fifo", "--fail", "node1@10", "--json")
    assert run.code == 0
    assert run.document["unfinished"] == ["d"]
    assert run.document["failures"] == 1


def test_a_fault_that_stops_no_job_is_reported_as_such(sterna: Sterna, trace: Path) -> None:
    asked = ("simulate", "--trace", trace, "--nodes", "2x4", "--policy", "fifo", "--limit", "1")
    trace.write_text("job,submit_s,workers,duration_s,model\na,0,4,100,vgg16\n")
    run = sterna(*asked, "--fail", "node1@10")
    assert "stopped by lost nodes" in run.out
    assert run.err == ""
    late = sterna(*asked, "--fail", "node1@500", "--json")
    assert late.err == "note: --fail node1@500: every job had ended by then, at 100 s, so nothing was lost.\n"
    assert late.document["notices"] == ["--fail node1@500: every job had ended by then, at 100 s, so nothing was lost."]


def test_a_lost_node_comes_back(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "2x4", "--policy", "fifo", "--fail", "1@10+5", "--json")
    assert run.document["unfinished"] == []
    assert run.document["failures"] == 1


def test_the_same_seed_draws_the_same_faults(sterna: Sterna, trace: Path) -> None:
    asked = (
        "simulate",
        "--trace",
        trace,
        "--nodes",
        "4x4",
        "--policy",
        "fifo",
        "--json",
        "--mtbf",
        "100",
        "--mttr",
        "5",
    )
    first, again, other = (sterna(*asked, "--seed", seed).document for seed in ("1", "1", "2"))
    assert first["failures"] > 0
    assert first | {"wall_s": 0} == again | {"wall_s": 0}
    assert first["avg_jct_s"] != other["avg_jct_s"]


def test_a_virtual_cluster_and_a_limit_narrow_the_trace(sterna: Sterna, trace: Path) -> None:
    asked = ("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--json")
    assert sterna(*asked, "--vc", "blue").document["jobs"] == 2
    assert sterna(*asked, "--limit", "3").document["jobs"] == 3


def test_restart_costs_are_paid(sterna: Sterna, trace: Path) -> None:
    asked = ("simulate", "--trace", trace, "--nodes", "4x8", "--policy", "fifo", "--json")
    free, dear = sterna(*asked).document, sterna(*asked, "--restart-cost", "7").document
    assert dear["avg_jct_s"] == pytest.approx(free["avg_jct_s"] + 7)


def test_every_job_has_a_row_in_the_csv(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run = sterna("simulate", "--trace", trace, "--nodes", "1x4", "--policy", "srjf", "--jobs-csv", out)
    assert run.code == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["job"] for row in rows] == ["a", "b", "c", "d"]
    assert [row["state"] for row in rows] == ["finished", "finished", "finished", "unschedulable"]
    assert float(rows[1]["jct_s"]) == pytest.approx(float(rows[1]["finish_s"]) - float(rows[1]["submit_s"]))
    assert sum(int(row["preemptions"] or 0) for row in rows) == 2
    assert rows[3]["finish_s"] == ""


def test_a_job_that_never_started_has_no_wait_in_the_csv_and_a_name_on_the_page(sterna: Sterna, tmp_path: Path) -> None:
    trace, table, page = tmp_path / "jobs.csv", tmp_path / "out.csv", tmp_path / "run.html"
    trace.write_text("job,submit_s,workers,duration_s\na,0,2,10\nb,5,4,10\n")
    asked = ("simulate", "--trace", trace, "--nodes", "2x2", "--policy", "fifo", "--fail", "node1@3")
    assert sterna(*asked, "--jobs-csv", table, "--report", page).code == 0
    a, b = csv.DictReader(table.read_text().splitlines())
    assert (a["state"], a["wait_s"]) == ("finished", "0")
    assert (b["state"], b["start_s"], b["wait_s"]) == ("unfinished", "", "")
    assert "<p>1 job never finished: b</p>" in page.read_text()


def test_the_report_needs_no_network(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    assert sterna("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--report", out).code == 0
    page = out.read_text()
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    assert len(page) < 6_000_000
    for heading in ("Completion times", "Utilisation", "Queue", "Allocation"):
        assert f"<h2>{heading}</h2>" in page
    assert f"sterna simulate --trace {trace}" in page


def test_unused_speedups_are_reported(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    curves = tmp_path / "curves.yaml"
    curves.write_text("resnet51: [1, 1.9]\n")
    asked = ("simulate", "--trace", trace, "--nodes", "2x8", "--policy", "fifo", "--speedups", curves, "--json")
    notice = "No job of the trace is of these models of --speedups: resnet51."
    assert sterna(*asked).document["notices"][0] == notice
    trace.write_text("job,submit_s,workers,duration_s,model\na,0,4,100,ResNet-51\n")
    assert sterna(*asked).document["notices"] == []


def test_the_report_counts_the_jobs_that_were_left_out(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    sterna("simulate", "--trace", trace, "--nodes", "1x4", "--policy", "fifo", "--report", out)
    assert "4 jobs of " in out.read_text()
    assert "1 job cannot run on this cluster, not even alone: " in out.read_text()


def test_a_report_replaces_an_old_one_and_leaves_nothing_else(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "run.html").write_text("old")
    asked = ("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--report", folder / "run.html")
    assert sterna(*asked).code == 0
    assert [path.name for path in folder.iterdir()] == ["run.html"]
    assert (folder / "run.html").read_text() != "old"


def test_the_journal_is_one_that_can_be_read(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    from sterna.control.journal import read_opening, read_rounds

    out = tmp_path / "rounds.jsonl"
    asked = ("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "dragon", "--journal", out, "--json")
    run = sterna(*asked)
    assert read_opening(out).placement == "pack"
    assert len(list(read_rounds(out))) == run.document["rounds"]


def test_an_old_journal_is_replaced_only_when_asked(sterna: Sterna, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "rounds.jsonl"
    asked = ("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--journal", out)
    assert sterna(*asked).code == 0
    before = out.read_bytes()
    again = sterna(*asked)
    assert again.code == 2
    assert again.err == (
        f"sterna: The journal '{out}' exists already; choose another file, or add --overwrite to replace it.\n"
    )
    assert out.read_bytes() == before
    assert sterna(*asked, "--limit", "2", "--overwrite").code == 0
    assert out.read_bytes() != before


def test_people_get_a_table(sterna: Sterna, trace: Path) -> None:
    run = sterna("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "fifo")
    assert "mean completion time" in run.out
    assert "\x1b" not in run.out
    assert max(map(len, run.out.splitlines())) <= 100


GOLDEN = [
    ("fifo:preempt=false", 35_051.44, 0),
    ("fifo:preempt=false:backfill=false", 36_236.03, 0),
    ("srjf:by=time", 28_560.1, 80),
    ("srjf", 28_144.19, 29),
]


@pytest.mark.parametrize(("policy", "mean", "stops"), GOLDEN, ids=[policy for policy, _, _ in GOLDEN])
def test_independent_simulators_agree(sterna: Sterna, policy: str, mean: float, stops: int) -> None:
    asked = (
        "simulate",
        "--trace",
        DATA / "bench" / "b1k.csv",
        "--nodes",
        "80x8",
        "--placement",
        "none",
        "--speedup",
        "linear",
        "--policy",
        policy,
        "--json",
    )
    summary = sterna(*asked).document
    assert summary["jobs"] == 1000
    assert summary["avg_jct_s"] == pytest.approx(mean, abs=0.01)
    assert summary["preemptions"] == stops
