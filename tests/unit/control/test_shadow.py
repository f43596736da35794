"""Shadow rules: a second policy decides every round, and its plan is recorded but not applied."""

from __future__ import annotations

import json
from pathlib import Path

from sterna.control.journal import JournalWriter, read_round, read_rounds
from sterna.control.shadow_rules import Shadow, forecast
from sterna.engine.decide import decide
from sterna.model.cluster import MILLI, Shape
from sterna.model.plan import ActionKind
from sterna.model.serving_pod import ServingPod
from sterna.planning import replay
from sterna.wiring import make_rules
from tests.builders import a_job, a_snapshot, some_nodes

LONG_AND_SHORT = [
    a_job("long", 4, on={"n0": 4}, submit=0, first_start=0, remaining=400),
    a_job("short", 4, submit=1, remaining=40),
]


def test_shadow_records_its_actions_and_expected_completions(tmp_path: Path) -> None:
    snapshot = a_snapshot(LONG_AND_SHORT, some_nodes(4), now=1.0)
    decision = decide(snapshot, make_rules("fifo", "stay"))
    with JournalWriter(tmp_path / "j", policy="fifo", placement="stay", shadow="srjf") as journal:
        shadow = Shadow(make_rules("srjf", "stay"), journal)
        shadow.record(snapshot, decision)
    assert not decision.plan.actions
    assert (shadow.rounds, shadow.differing) == (1, 1)
    (recorded,) = read_rounds(tmp_path / "j")
    view = recorded.shadow
    assert view is not None
    assert [(action.kind, recorded.snapshot.jobs.name_of(action.row)) for action in view.actions] == [
        (ActionKind.STOP, "long"),
        (ActionKind.START, "short"),
    ]
    assert (view.own.left_seconds, view.forecast.left_seconds) == (100.0, 10.0)
    assert view.forecast.speed == view.own.speed == 4.0


def test_replay_prints_the_shadow(tmp_path: Path) -> None:
    snapshot = a_snapshot(LONG_AND_SHORT, some_nodes(4), now=1.0)
    with JournalWriter(tmp_path / "j", policy="fifo", placement="stay", shadow="srjf") as journal:
        Shadow(make_rules("srjf", "stay"), journal).record(snapshot, decide(snapshot, make_rules("fifo", "stay")))
    answer = replay(tmp_path / "j", 0)
    assert answer["same"]
    assert answer["shadow"]["policy"] == "srjf"
    assert answer["shadow"]["differs"]
    assert [deed["job"] for deed in answer["shadow"]["actions"]] == ["long", "short"]
    json.dumps(answer)


def test_equal_shadow_is_reported_as_equal() -> None:
    snapshot = a_snapshot(LONG_AND_SHORT, some_nodes(4), now=1.0)
    shadow = Shadow(make_rules("fifo", "stay"))
    shadow.record(snapshot, decide(snapshot, make_rules("fifo", "stay")))
    assert shadow.summary == {"rounds": 1, "rounds_that_differ": 0, "speed_ratio": 1.0}


def test_shadow_expects_no_completions_without_running_jobs() -> None:
    assert forecast(a_snapshot([a_job("a")], some_nodes(4)), ()).left_seconds is None


def test_journal_contains_serving_pods_for_replay(tmp_path: Path) -> None:
    from dataclasses import replace

    job = a_job("a", (1, 4), on={"n0": 4}, first_start=0)
    pod = ServingPod("chat", Shape(devices=MILLI, tolerations=frozenset({"x"})), 0.5)
    other = ServingPod("cpu_share", Shape(devices=MILLI, is_shared=True), 0.1, rank=1)
    snapshot = replace(a_snapshot([job], some_nodes(4), now=1.0), serving=(pod, other))
    decision = decide(snapshot, make_rules("elastic-fifo", "stay"))
    with JournalWriter(tmp_path / "j", policy="elastic-fifo", placement="stay") as journal:
        journal.record(snapshot, decision)
    answer = replay(tmp_path / "j", 0)
    assert read_round(tmp_path / "j", 0).snapshot.serving == snapshot.serving
    assert answer["same"]
    assert answer["allocation"] == {"a": 2}
    assert answer["reasons"]["a"].endswith("to make room for serving pod chat.")
