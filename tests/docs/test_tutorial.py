"""Every command of the docs works and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.console import ROOT, commands, lay_out, run, without_times

POLICIES = sorted((ROOT / "docs" / "policies").glob("*.md"))
PAGES = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "traces.md", ROOT / "CONTRIBUTING.md", *POLICIES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    lay_out(page, tmp_path)
    for command in commands(page.read_text(encoding="utf-8")):
        outcome = run(command, tmp_path)
        assert outcome.exit_code == 0, f"$ {command.line}\n{outcome.printed}\n{outcome.complaint}"
        assert without_times(outcome.printed) == without_times(command.printed), "run make docs"


def test_the_page_of_each_policy_has_a_command() -> None:
    silent = [
        page.name for page in POLICIES if page.stem != "README" and not commands(page.read_text(encoding="utf-8"))
    ]
    assert silent == []


def test_a_command_s_output_ends_where_the_next_begins() -> None:
    page = "```console\n$ sterna a\none\n\ntwo\n$ sterna b\n```\n"
    assert [(command.line, command.printed) for command in commands(page)] == [
        ("sterna a", "one\n\ntwo"),
        ("sterna b", ""),
    ]


def test_pages_that_promise_tested_commands_are_tested() -> None:
    pages = [
        page for page in (ROOT / "docs").rglob("*.md") if re.search(r"^```console$", page.read_text(), re.MULTILINE)
    ]
    assert [page.name for page in pages if page not in PAGES] == []
