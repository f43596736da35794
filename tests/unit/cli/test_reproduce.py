"""`sterna reproduce`: the table, the document, the page, and what is refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from sterna.experiments.reproduction.studies import STUDIES
from tests.unit.cli.conftest import Sterna


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a study that takes no time. The command's help is made when it is first loaded, of what there is then."""
    import_module("sterna.cli.commands.simulation.reproduce")
    monkeypatch.setattr("sterna.experiments.reproduction.studies.STUDIES", {"tiny": "tests.unit.cli.tiny_study"})


def test_a_missed_target_is_said_and_is_no_error(sterna: Sterna) -> None:
    run = sterna("reproduce", "tiny")
    assert run.code == 0
    assert "tiny: Does it hold?" in run.out
    assert "1 of 2 targets hold; missed: cold <b> (makespan, s)." in run.out
    assert "- Take it with salt." in run.out
    cells = [line.split() for line in run.out.splitlines()]
    assert ["mean", "completion,", "s", "120", "100", "90", "yes", "steady"] in cells
    assert ["makespan,", "s", "5,000", "4,000", "4,321", "no"] in cells
    assert ["moves", "0.25"] in cells
    assert max(map(len, run.out.splitlines())) <= 100


def test_the_document_is_that_of_the_study(sterna: Sterna) -> None:
    document = sterna("reproduce", "tiny", "--json").document
    assert document["name"] == "tiny"
    row = document["rows"][0]
    assert {key: row[key] for key in ("case", "metric", "published", "target", "ours", "holds")} == {
        "case": "warm", "metric": "mean completion, s", "published": 120.0, "target": 100.0, "ours": 90.0,
        "holds": True,
    }  # fmt: skip


def test_long_studies_report_progress_without_a_terminal(sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = {"tiny": "tests.unit.cli.tiny_study", "again": "tests.unit.cli.tiny_study"}
    monkeypatch.setattr("sterna.experiments.reproduction.studies.STUDIES", studies)
    lines = sterna("reproduce", "all", "--json").err.splitlines()
    titles = ("tiny, study 1 of 2", "again, study 2 of 2")
    assert lines == [f"{title}: {percent} %" for title in titles for percent in (50, 100)]


def test_all_studies_come_as_a_list(sterna: Sterna) -> None:
    document = sterna("reproduce", "all", "--json").document
    assert [each["name"] for each in document["reproductions"]] == ["tiny"]


def test_the_page_has_the_table_and_the_figures(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert sterna("reproduce", "tiny", "--report", path, "--json").code == 0
    page = path.read_text()
    assert "cold &lt;b&gt;" in page
    assert "<h3>Bars</h3>" in page
    assert "4,321" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("reproduce", "tny"), "There is no study 'tny' to reproduce: did you mean 'tiny'?"),
        (("reproduce", "tiny", "--seeds", "0"), "--seeds 0: use at least one"),
        (("reproduce", "tiny", "--seeds", "many"), "--seeds"),
        (("reproduce",), "Missing argument"),
        (("reproduce", "tiny", "--report", "no/such/folder/x.html"), "there is no folder"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(sterna: Sterna, arguments: tuple[str, ...], sentence: str) -> None:
    run = sterna(*arguments)
    assert run.code == 2
    assert sentence in run.err
    assert len(run.err.splitlines()) == 1
    assert run.out == ""


def test_help_names_the_studies_and_has_examples(sterna: Sterna) -> None:
    text = sterna("reproduce", "--help").out
    assert "|".join(STUDIES) in text
    assert "sterna reproduce voda --json" in text
