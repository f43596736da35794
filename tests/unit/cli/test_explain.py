"""`sterna explain` and `sterna whatif` as a user types them: for people, for programs, and with bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna


@pytest.fixture
def journal(sterna: Sterna, trace: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    run = sterna("simulate", "--trace", trace, "--nodes", "2x4", "--policy", "fifo", "--journal", path)
    assert run.code == 0
    return path


@pytest.mark.parametrize("name", ["explain", "whatif"])
def test_help_has_examples(sterna: Sterna, name: str) -> None:
    run = sterna(name, "--help")
    assert run.code == 0
    assert f"sterna {name} run.jsonl" in run.out
    assert "--json" in run.out


def test_events_are_printed_in_order_of_time(sterna: Sterna, journal: Path) -> None:
    run = sterna("explain", journal, "d")
    assert run.code == 0
    lines = [line.strip() for line in run.out.splitlines()]
    assert lines[0] == "d under fifo / stay, up to round 7, 120 s after the journal's start"
    assert lines[1:] == [
        "3 s    submitted: asks for 8 workers.",
        "3 s    waited 97 s: 8 more devices needed; at last 4 more devices needed.",
        "100 s    started with 8 workers on node0 (4), node1 (4).",
        "120 s    ended 117 s after it was submitted, of which it waited 97 s.",
    ]


def test_what_would_start_a_waiting_job_is_printed(sterna: Sterna, journal: Path) -> None:
    out = sterna("explain", journal, "c", "--at", "30").out
    assert "has waited 1 s: 2 more devices needed." in out
    assert "What would start it:" in out
    assert "2 more devices would start it now." in out
    asked = sterna("explain", journal, "c", "--round", "3", "--json").document
    assert asked["state"] == "waits"
    assert {"change": "devices", "amount": 2, "sentence": "2 more devices would start it now."} in asked["changes"]


def test_a_story_is_a_document_too(sterna: Sterna, journal: Path) -> None:
    asked = sterna("explain", journal, "a", "--json").document
    assert [event["event"] for event in asked["events"]] == ["submitted", "started", "ended"]
    assert (asked["state"], asked["changes"]) == ("ended", [])


def test_history_under_another_policy_is_two_tables(sterna: Sterna, journal: Path) -> None:
    run = sterna("whatif", journal, "--policy", "srjf")
    assert run.code == 0
    assert "rounds otherwise than fifo / stay did" in run.out
    for word in ("round by round", "as a whole", "recorded", "rebuilt", "srjf", "Round 2 at 2 s"):
        assert word in run.out
    asked = sterna("whatif", journal, "--policy", "srjf", "--json").document
    assert asked["rerun"]["jobs"] == 4
    assert asked["rerun"]["recorded"] == asked["rerun"]["rebuilt"]
    straight = sterna(
        "simulate", "--trace", journal.parent / "jobs.csv", "--nodes", "2x4", "--policy", "srjf", "--json"
    )
    for key in ("avg_jct_s", "avg_wait_s", "makespan_s", "preemptions", "migrations", "resizes"):
        assert asked["rerun"]["policy"][key] == pytest.approx(straight.document[key])


def test_notices_go_to_stderr(sterna: Sterna, journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    run = sterna("whatif", journal, "--policy", "srjf", "--json")
    assert run.err.startswith("note: 1 job had not ended when the journal did")
    assert run.document["notices"]


@pytest.mark.parametrize("asked", [("explain", "a"), ("whatif", "--policy", "srjf")])
def test_a_journal_that_was_cut_off_is_read_up_to_there(sterna: Sterna, journal: Path, asked: tuple[str, ...]) -> None:
    journal.write_bytes(journal.read_bytes()[:-100])
    run = sterna(asked[0], journal, *asked[1:], "--json")
    assert run.code == 0
    notice = f"'{journal}' ends in the middle of line 10; what came before was read."
    assert run.err.startswith(f"note: {notice}\n")
    assert run.document["notices"][0] == notice


def test_a_terminal_sees_how_far_the_reading_is(sterna: Sterna, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.explain.rounds._ROUNDS_BETWEEN_REPORTS", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert sterna("explain", journal, "a").code == 0


REFUSED = [
    (["explain", "{journal}", "e"], "tells of no job 'e'"),
    (["explain", "{journal}", "d", "--at", "1"], "first tells of job 'd' in round 3, at 3 s"),
    (["explain", "{journal}", "d", "--at", "1", "--round", "2"], "give one of them"),
    (["explain", "{journal}", "d", "--round", "99"], "it has rounds 0 to 7"),
    (["explain", "{journal}", "d", "--round", "-1"], "--round -1: give a whole number of at least 0."),
    (["explain", "{journal}", "d", "--round", "x"], "--round x: give a whole number of at least 0."),
    (["replay", "{journal}", "--round", "x"], "--round x: give a whole number of at least 0."),
    (["replay", "{journal}", "--round", "1", "--policy", "fifo,srjf"], "sterna compare --policies fifo,srjf"),
    (["replay", "{journal}", "--round", "1", "--policy", ""], "There is no policy '': choose one of"),
    (["replay", "{journal}", "--round", "1", "--placement", ""], "There is no placement '': choose one of"),
    (["replay", "missing.jsonl", "--round", "0"], "there is no such file; check the path, or write one with"),
    (["replay", ".", "--round", "0"], "this is a folder; give one of the files in it"),
    (["explain", "missing.jsonl", "d"], "cannot be read"),
    (["explain", "{trace}", "d"], "line 1: this is not a line of a journal"),
    (["whatif", "{trace}", "--policy", "srjf"], "line 1: this is not a line of a journal"),
    (["whatif", "{journal}", "--policy", "srfj"], "did you mean 'srjf'?"),
    (["whatif", "{journal}", "--policy", "srjf", "--placement", "pakc"], "did you mean 'pack'?"),
    (["whatif", "{journal}", "--policy", "srjf", "--placement", ""], "There is no placement '': choose one of"),
    (["whatif", "{journal}", "--policy", "srjf", "--placement", "none"], "choose another --placement"),
    (["whatif", "{journal}"], "--policy"),
    (["replay", "{journal}"], "Missing option '--round'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_bad_input_is_one_sentence(
    sterna: Sterna, journal: Path, trace: Path, arguments: list[str], sentence: str
) -> None:
    run = sterna(*(argument.format(journal=journal, trace=trace) for argument in arguments))
    assert run.code == 2
    assert sentence in run.err
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err


def test_requested_times_of_a_journal_are_simulated_again(sterna: Sterna, tmp_path: Path) -> None:
    trace, journal = tmp_path / "t.csv", tmp_path / "r.jsonl"
    rows = "a,0,3,100,200\nb,1,4,50,50\nc,2,1,150,\n"
    trace.write_text(f"job,submit_s,workers,duration_s,requested_s\n{rows}")
    sterna("simulate", "--trace", trace, "--nodes", "1x4", "--policy", "easy", "--journal", journal)
    again = sterna("whatif", journal, "--policy", "fifo", "--json").document["rerun"]
    assert again["recorded"] == again["rebuilt"]
    assert again["recorded"]["makespan_s"] == 202
