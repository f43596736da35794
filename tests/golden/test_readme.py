"""The table of policies in the README is what its command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sterna

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(
    r"`sterna compare --trace (\S+) --nodes (\S+) --policies all --elastic (\S+) --restart-cost (\d+)"
    r"(?: --speedup (\S+))?`"
)
ROW = re.compile(r"^\| \[?`([^`]+)`.*? \| ([\d,]+) \| \**([\d.]+)\** \| ([\d,]+) \|$", re.MULTILINE)


@pytest.mark.slow
def test_readme_shows_what_its_command_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = COMMAND.search(re.sub(r"\s*\n\s*", " ", readme))
    assert command, "the README names no command that a clone can run"
    trace, nodes, elastic, restart_cost, speedup = command.groups()
    comparison = sterna.compare(
        ROOT / trace,
        nodes,
        "all",
        elastic=elastic,
        restart_cost=float(restart_cost),
        speedup=speedup or "profiles",
        cores=1,
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
    assert set(ROW.findall(readme)) == printed
