"""`sterna try-pattern` shows what would be read of a saved log, and what to do when that is nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna
from tests.unit.progress.event_files import event, plain

LOG = "starting on port 8080\nstep=1/100 loss=0.5\nstep=2/100 loss=nan\n"


def test_a_log_in_a_known_form_is_shown_as_it_would_be_read(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    run = sterna("try-pattern", path)
    assert run.code == 0
    assert "2 lines of 3 matched (name=value: 2)" in run.out
    assert "loss (less is better)" in run.out
    assert "loss=none" in run.out
    assert "note: 1 of the matched lines hold a value that is no number" in run.err


def test_its_help_shows_how_it_is_used(sterna: Sterna) -> None:
    shown = sterna("try-pattern", "--help").out
    assert "sterna try-pattern train.log --pattern 'it (?P<step>\\d+) of" in shown


def test_a_program_gets_the_same(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    document = sterna("try-pattern", path, "--json").document
    assert (document["lines"], document["matched"], document["metric"], document["goal"]) == (3, 2, "loss", "min")
    assert document["examples"][0] == {"line": 2, "step": 1, "total": 100, "metrics": {"loss": 0.5}}


def test_a_pattern_of_one_s_own_is_tried(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("it 5 of 9\n")
    document = sterna("try-pattern", path, "--pattern", r"it (?P<step>\d+) of (?P<total>\d+)", "--json").document
    assert document["examples"][0]["total"] == 9


def test_files_of_other_kinds_are_known_by_their_names(sterna: Sterna, tmp_path: Path) -> None:
    table, events = tmp_path / "m.csv", tmp_path / "events.out.tfevents.1.host"
    table.write_text("step,loss\n1,0.5\n")
    events.write_bytes(event(0) + event(3, plain("acc", 0.5)))
    assert sterna("try-pattern", table, "--json").document["patterns"] == {"CSV": 1}
    document = sterna("try-pattern", events, "--json").document
    assert (document["patterns"], document["goal"]) == ({"TensorBoard": 1}, "max")


def test_steps_that_go_back_are_pointed_out(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step=9 loss=1\nstep=1 loss=1\n")
    assert "goes back 1 times" in sterna("try-pattern", path).err


WRONG = [
    (["--pattern", r"(\d+)"], "names nothing to read"),
    (["--pattern", r"(?P<step>\d+"], "no regular expression"),
    ([], "0 of 2 lines matched, for example 'value 3'; print lines like"),
    (["--pattern", r"x(?P<step>\d+)"], "0 of 2 lines matched, for example 'value 3'; change --pattern"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_what_does_not_work_is_said_in_one_sentence(
    sterna: Sterna, tmp_path: Path, options: list[str], sentence: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text("hello\nvalue 3\n")
    run = sterna("try-pattern", path, *options)
    assert run.code == 2
    assert sentence in run.err
    assert run.err.count("\n") == 1
    assert run.out == ""


def test_json_output_reports_that_nothing_matched(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("hello\n")
    run = sterna("try-pattern", path, "--json")
    assert run.code == 2
    assert run.document["matched"] == 0


@pytest.mark.parametrize(
    ("name", "sentence"), [("missing", "no such file"), ("", "this is a folder"), ("empty", "the file is empty")]
)
def test_a_file_that_cannot_be_read_is_named(sterna: Sterna, tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "empty").touch()
    run = sterna("try-pattern", tmp_path / name)
    assert run.code == 2
    assert sentence in run.err


def test_a_damaged_archive_is_named(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(LOG.encode())[:-12])
    assert "gzip data is damaged" in sterna("try-pattern", path).err
