"""Reports reach the file: few lines, no value lost, no training disturbed."""

from __future__ import annotations

import ast
import json
import math
import os
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sterna.agent import membership, process, reporting, stopping
from sterna.agent.reporting import Reporter
from sterna.progress.reader import ProgressReader
from sterna.progress.sources.agent import AGENT_FILE
from tests.unit.agent.scripts import ROOT, environment, lines, script, until

NONE: dict[str, Any] = {}


def test_the_first_report_is_on_disk_at_once(tmp_path: Path) -> None:
    Reporter(str(tmp_path)).report(3, 100, {"loss": 0.5}, 2)
    (line,) = lines(tmp_path)
    assert {key: line[key] for key in ("step", "total", "metrics", "generation")} == {
        "step": 3,
        "total": 100,
        "metrics": {"loss": 0.5},
        "generation": 2,
    }


def test_a_flood_becomes_few_lines_and_the_last_report_is_among_them(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))
    for step in range(1000):
        reporter.report(step, 1000, {"loss": float(step)}, 0)
    reporter.flush()
    found = lines(tmp_path)
    assert len(found) < 20
    assert found[-1]["step"] == 999
    assert found[-1]["metrics"] == {"loss": 999.0}


def test_a_metric_reported_once_in_a_flood_is_kept(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))
    for step in range(100):
        reporter.report(step, None, {"val_loss": 0.7} if step == 50 else {"loss": 1.0}, 0)
    reporter.flush()
    assert [line["metrics"]["val_loss"] for line in lines(tmp_path) if "val_loss" in line["metrics"]] == [0.7]


def test_pending_report_is_written_without_a_further_report(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))
    reporter.report(1, 9, {"loss": 1.0}, 0)
    reporter.report(2, 9, {"loss": 0.5}, 0)
    assert until(lambda: lines(tmp_path)[-1]["step"] == 2)


def test_new_generation_is_reported_at_once(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))
    reporter.report(1, None, NONE, 1)
    reporter.report(2, None, NONE, 2)
    assert [line["generation"] for line in lines(tmp_path)] == [1, 2]


VALUES = [
    (math.nan, {"x": None}),
    (-math.inf, {"x": None}),
    (True, {"x": 1.0}),
    (Fraction(1, 4), {"x": 0.25}),
    ("0.5", {"x": 0.5}),
    ("best", {}),
    (None, {}),
    ([1, 2], {}),
    (10**400, {}),
    (1j, {}),
]


@pytest.mark.parametrize(("value", "written"), VALUES, ids=[str(value)[:8] for value, _ in VALUES])
def test_metric_that_is_no_number_is_left_out_of_a_report(tmp_path: Path, value: Any, written: dict[str, Any]) -> None:
    Reporter(str(tmp_path)).report("7", math.inf, {"x": value}, 0)
    (line,) = lines(tmp_path)
    assert (line["step"], line["total"], line["metrics"]) == (7, None, written)


class Hostile:
    def __float__(self) -> float:
        raise RuntimeError("no")


def test_nothing_that_is_reported_can_raise(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))
    reporter.report(Hostile(), Hostile(), {"x": Hostile()}, 0)
    Reporter(str(tmp_path / "missing")).report(1, 2, {"loss": 1.0}, 0)
    Reporter("").report(1, 2, {"loss": 1.0}, 0)


def test_a_torn_line_does_not_tear_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter(str(tmp_path))
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    reporter.report(1, None, NONE, 0)
    monkeypatch.setattr(os, "write", write)
    reporter.report(2, None, NONE, 1)
    reader = ProgressReader(tmp_path)
    assert [report.step for report in reader.poll()] == [2]
    reader.close()


def test_several_threads_may_report(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path))

    def work(name: str) -> None:
        for step in range(300):
            reporter.report(step, 300, {name: float(step)}, step // 50)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.flush()
    assert {name for line in lines(tmp_path) for name in line["metrics"]} == {"a", "b", "c"}


def test_a_process_that_ends_leaves_nothing_unwritten(tmp_path: Path) -> None:
    code = """
        from sterna import agent
        for step in range(500):
            agent.report(step, 500, loss=1 / (step + 1))
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process_:
        assert process_.wait(30) == 0
    assert lines(tmp_path / "r")[-1]["step"] == 499


def test_forked_child_does_not_write_reports_of_its_parent(tmp_path: Path) -> None:
    code = """
        import os
        from sterna import agent
        agent.report(1, 3)
        agent.report(2, 3)
        if os.fork() == 0:
            raise SystemExit(0)
        os.wait()
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process_:
        assert process_.wait(30) == 0
    assert [line["step"] for line in lines(tmp_path / "r")] == [1, 2]


def test_without_sterna_reports_go_nowhere(tmp_path: Path) -> None:
    code = """
        from sterna import agent
        agent.report(1, 2, loss=0.3)
        agent.saved()
        assert not agent.should_stop()
        assert agent.world() == (0, 1, 0, ())
        assert str(agent.checkpoint_dir("here")) == "here"
    """
    with script(code, environment(None), tmp_path) as process_:
        assert process_.wait(30) == 0, process_.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_the_agent_needs_nothing_but_the_standard_library() -> None:
    for path in (ROOT / "src" / "sterna" / "agent").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or name.startswith("sterna.agent"), f"{path.name}: {name}"


def test_both_sides_of_the_file_agree_on_its_name_and_fields(tmp_path: Path) -> None:
    assert AGENT_FILE == reporting.FILE
    assert (stopping.FILE, stopping.EXIT_CODE) == ("saved.json", 143)
    here = process.AgentProcess({"STERNA_DIR": str(tmp_path)})
    here.report(1, 2, {"loss": 0.5})
    here.saved(None)
    reader = ProgressReader(tmp_path)
    told, kept = reader.poll()
    reader.close()
    assert (told.step, told.total, told.metrics, told.saved) == (1, 2, {"loss": 0.5}, False)
    assert (kept.step, kept.saved) == (1, True)
    assert json.loads((tmp_path / stopping.FILE).read_text())["step"] == 1


def test_a_membership_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    found = membership.Membership({"STERNA_WORLD": str(path), "STERNA_ATTEMPT": "2", "STERNA_INDEX": "1"})
    assert found.world().rank == 0
    member = {"rank": 3, "attempt": 2, "index": 1, "address": "127.0.0.1:1"}
    path.write_text(json.dumps({"generation": 4, "members": [member]}))
    assert found.world()[:3] == (3, 1, 4)
    path.write_text("{half")
    assert found.world()[:3] == (3, 1, 4)
    path.write_text(json.dumps({"generation": 5, "members": []}))
    assert found.world()[:3] == (-1, 0, 5)
