"""Reading and validating journals: errors name the file, the line and the next step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sterna.control.journal import JournalWriter, read_opening, read_round, read_rounds
from sterna.errors import UserError
from sterna.model.cluster import MILLI
from sterna.model.plan import Decision, Plan
from sterna.model.snapshot import NEVER
from tests.builders import a_job, a_snapshot, decided, some_nodes

Line = dict[str, Any]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Lines 1 to 7: the opening, nodes, rounds 0 to 2, other nodes, round 3."""
    path = tmp_path / "run.jsonl"
    jobs = [a_job("a", 2, on={"n0": 2}), a_job("b", 4, submit=1)]
    with JournalWriter(path, policy="fifo", placement="stay") as writer:
        for devices in ((4,), (4,), (4,), (4, 4)):
            snapshot = a_snapshot(jobs, some_nodes(*devices))
            writer.record(snapshot, decided(snapshot).decision)
    return path


def numbers(path: Path) -> list[int]:
    return [round_.number for round_ in read_rounds(path)]


def edit_lines(path: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


def with_field(path: Path, line: int, change: Callable[[Line], object]) -> None:
    def edit(lines: list[bytes]) -> list[bytes]:
        document = json.loads(lines[line - 1])
        change(document)
        return [*lines[: line - 1], json.dumps(document).encode() + b"\n", *lines[line:]]

    edit_lines(path, edit)


def test_rounds_come_back_in_order(journal: Path) -> None:
    assert numbers(journal) == [0, 1, 2, 3]
    assert len(read_round(journal, 3).snapshot.nodes) == 2


def test_prices_and_the_right_to_evict_come_back(tmp_path: Path) -> None:
    snapshot = replace(a_snapshot([a_job("a")], some_nodes(1)), evicts_unsaved=True)
    actions = decided(snapshot, "fifo").decision.plan.actions
    with JournalWriter(tmp_path / "j", policy="fifo", placement="stay") as writer:
        writer.record(snapshot, Decision(Plan([action._replace(price=2.5) for action in actions])))
    (recorded,) = read_rounds(tmp_path / "j")
    assert [action.price for action in recorded.actions] == [2.5]
    assert recorded.snapshot.evicts_unsaved


def test_missing_round_is_rejected(journal: Path) -> None:
    edit_lines(journal, lambda lines: lines[:3] + lines[4:])
    with pytest.raises(UserError) as refusal:
        numbers(journal)
    assert str(refusal.value) == (
        f"'{journal}', line 4: found round 2, expected round 1, so lines are missing, repeated or out of order; "
        "get a whole copy of the file, or write a new one with --journal."
    )


def test_duplicate_round_is_rejected(journal: Path) -> None:
    edit_lines(journal, lambda lines: [*lines[:4], lines[3], *lines[4:]])
    with pytest.raises(UserError, match="line 5: found round 1, expected round 2"):
        numbers(journal)


def test_missing_nodes_are_rejected(journal: Path) -> None:
    edit_lines(journal, lambda lines: lines[:5] + lines[6:])
    with pytest.raises(UserError, match=r"line 6: the line with the nodes .* is missing"):
        numbers(journal)


def test_two_journals_in_one_file_are_rejected(journal: Path) -> None:
    edit_lines(journal, lambda lines: lines + lines)
    with pytest.raises(UserError, match="line 8: another journal begins here"):
        numbers(journal)


def test_journal_of_another_version_is_rejected(journal: Path) -> None:
    with_field(journal, 1, lambda line: line.update(version=99))
    with pytest.raises(UserError, match="its form is 99, this one reads 2; read it with that version"):
        read_opening(journal)


def test_truncated_last_line_is_skipped_with_a_notice(journal: Path) -> None:
    edit_lines(journal, lambda lines: [*lines[:-1], lines[-1][:50]])
    heard: list[str] = []
    assert [round_.number for round_ in read_rounds(journal, heard.append)] == [0, 1, 2]
    assert heard == [f"'{journal}' ends in the middle of line 7; what came before was read."]
    with pytest.raises(UserError, match="has no round 3: it has rounds 0 to 2, its last line is cut off; choose one"):
        read_round(journal, 3)


def an_action(kind: str, row: int) -> list[object]:
    return [kind, 0, row, [[], [], []], [[], [], []], "none"]


DAMAGES: dict[str, tuple[Callable[[Line], object], str]] = {
    "a job too few": (lambda line: line["name"].pop(), "key has 2 entries for 1 job)"),
    "a column too short": (lambda line: line["ints"]["workers"].pop(), "workers has 1 entries for 2 jobs"),
    "a column that is not there": (lambda line: line["ints"].pop("shape"), "'shape' is missing"),
    "a column of floats that is not there": (lambda line: line["floats"].pop("remaining"), "'remaining' is missing"),
    "a node too few": (lambda line: line["free"][0].pop(), "free is not told for all nodes"),
    "a node neither open nor closed": (lambda line: line["is_open"].pop(), "is_open is not told for all nodes"),
    "an unknown shape": (lambda line: line["ints"].update(shape=[9, 9]), "a shape that is not described"),
    "an assignment on no node": (
        lambda line: line.update(assignments=[[0, [[[7, 2]], [], []]]]),
        "a node that is not described",
    ),
    "an action of an unknown kind": (
        lambda line: line.update(actions=[an_action("FLY", 0)]),
        "no action is called FLY",
    ),
    "less than no workers": (lambda line: line["ints"].update(workers=[-5, 0]), "workers of a job is negative"),
    "a job that was never submitted": (lambda line: line["floats"].update(submit=[0, None]), "submit of a job is not"),
    "two jobs with one key": (lambda line: line["ints"].update(key=[0, 0]), "two jobs have the same key"),
    "workers without an assignment": (lambda line: line.update(assignments=[]), "a has 2 workers, but 0 sit on nodes"),
    "an assignment too small": (
        lambda line: line.update(assignments=[[0, [[[0, 1]], [], []]]]),
        "a has 2 workers, but 1 sit on nodes",
    ),
    "an assignment of an unknown job": (
        lambda line: line["assignments"].append([7, [[[0, 1]], [], []]]),
        "is not described sits somewhere",
    ),
    "less than no workers on a node": (
        lambda line: line.update(assignments=[[0, [[[0, 3], [0, -1]], [], []]]]),
        "-1 workers sit on a node",
    ),
    "less than nothing free": (lambda line: line["free"][0].__setitem__(0, -99), "less than nothing is free on n0"),
    "extra of unknown job": (
        lambda line: line.update(extras={"cpu_share": [[9, 0.5]]}),
        "told of a job that is not",
    ),
    "an action of another job": (
        lambda line: line.update(actions=[["STOP", 55, 0, [[], [], []], [[], [], []], "none"]]),
        "a job that is not described",
    ),
    "action of unknown job": (
        lambda line: line.update(actions=[an_action("STOP", 5)]),
        "a job that is not described",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_round_is_rejected_before_a_decision(journal: Path, damage: str) -> None:
    change, sentence = DAMAGES[damage]
    with_field(journal, 3, change)
    with pytest.raises(UserError, match=r"line 3: this round is damaged \(.*\); get a whole copy") as refusal:
        numbers(journal)
    assert sentence in str(refusal.value)


BROKEN_NODES: dict[str, tuple[Callable[[Line], object], str]] = {
    "an empty curve": (lambda line: line.update(curves=[[]]), "a speed-up curve is empty"),
    "a curve that goes below zero": (
        lambda line: line.update(curves=[[1.0, -2.0]]),
        "a speed-up curve is empty or not",
    ),
    "a shape that needs a word": (lambda line: line["shapes"][0].update(devices="one"), "a shape needs what is not"),
    "capacity of too few resources": (lambda line: line["capacity"].pop(), "capacity is not told for all nodes"),
    "a rack too many": (lambda line: line["rack"].append(0), "racks, labels or taints"),
}


@pytest.mark.parametrize("damage", BROKEN_NODES)
def test_damaged_nodes_are_rejected_before_their_rounds(journal: Path, damage: str) -> None:
    change, sentence = BROKEN_NODES[damage]
    with_field(journal, 2, change)
    with pytest.raises(UserError, match=r"line 2: these nodes are damaged \(.*\); get a whole copy") as refusal:
        numbers(journal)
    assert sentence in str(refusal.value)


def test_assignment_on_a_node_with_counted_devices_is_rejected(journal: Path) -> None:
    with_field(journal, 1, lambda line: line.update(placement="none"))
    with pytest.raises(UserError, match="a job sits on a node though devices were only counted"):
        numbers(journal)


def test_a_node_that_lost_devices_may_hold_more_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    snapshot = a_snapshot([a_job("a", 4, on={"n0": 4})], some_nodes(4))
    lost = np.array([[2 * MILLI], [0], [0]])
    nodes = snapshot.nodes
    smaller = replace(nodes, capacity=nodes.capacity - lost, free=nodes.free - lost)
    with JournalWriter(path, policy="fifo", placement="stay") as writer:
        writer.record(replace(snapshot, nodes=smaller), Decision(Plan([]), NEVER, lambda: ()))
    assert numbers(path) == [0]


def test_file_that_is_not_a_journal_has_its_own_message(journal: Path) -> None:
    data = journal.read_bytes()
    for contents, advice in (
        (b"job,submit_s\n", "give a file that was written with --journal"),
        (gzip.compress(data), "unpack it with gunzip first"),
    ):
        journal.write_bytes(contents)
        with pytest.raises(UserError, match="line 1: this is not a line of a journal") as refusal:
            read_opening(journal)
        assert advice in str(refusal.value)


def test_existing_journal_is_not_overwritten(journal: Path) -> None:
    before = journal.read_bytes()
    with pytest.raises(UserError, match="exists already; choose another file, or add --overwrite to replace it"):
        JournalWriter(journal, policy="srjf", placement="stay")
    assert journal.read_bytes() == before
    with JournalWriter(journal, policy="srjf", placement="stay", overwrite=True):
        pass
    assert read_opening(journal).policy == "srjf"


def test_journal_can_be_written_to_a_device_file() -> None:
    with JournalWriter("/dev/null", policy="fifo", placement="stay"):
        pass


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.jsonl", "there is no such file; check the path, or write one with"),
        ("", "this is a folder; give one of the files in it"),
        ("a\0b", "choose another file"),
    ],
)
def test_unreadable_file_message_has_a_next_step(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(UserError, match="cannot be read") as refusal:
        read_opening(tmp_path / name)
    assert sentence in str(refusal.value)
