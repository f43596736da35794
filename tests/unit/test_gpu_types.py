"""Policies for single GPU types, from what is typed to what is decided, recorded and decided again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sterna.apps.operator import rules_of
from sterna.control.journal import JournalWriter, read_opening
from sterna.engine.decide import decide
from sterna.errors import UserError
from sterna.explain.narrative import explain
from sterna.planning import plan, replay
from sterna.settings import OperatorSettings
from sterna.wiring import make_rules, rules_by_type, unknown_types
from tests.builders import a_job, a_node, a_snapshot

TYPE = "vodascheduler/accelerator"
A100 = {TYPE: "nvidia-a100"}
CLUSTER: dict[str, Any] = {
    "nodes": [{"name": "n0", "gpus": 4, "labels": A100}, {"name": "n1", "gpus": 4}],
    "jobs": [
        {"name": "long", "submit": 0, "workers": 4, "remaining": 900, "selector": A100},
        {"name": "short", "submit": 1, "workers": 4, "remaining": 9, "selector": A100},
        {"name": "other-long", "submit": 0, "workers": 4, "remaining": 900},
        {"name": "other-short", "submit": 1, "workers": 4, "remaining": 9},
    ],
}


def running(answer: dict[str, Any]) -> set[str]:
    return {job for job, workers in answer["allocation"].items() if workers}


def test_a_plan_is_made_with_a_policy_for_one_type() -> None:
    """VODA-79."""
    assert running(plan(CLUSTER, "fifo")) == {"long", "other-long"}
    assert running(plan(CLUSTER, "fifo", policy_for=["nvidia-a100=srjf"])) == {"short", "other-long"}
    assert running(plan(CLUSTER, "srjf", policy_for=["nvidia-a100=fifo:preempt=false"])) == {"long", "other-short"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nvidia-a100", "write TYPE=POLICY, such as nvidia-a100=srjf"),
        ("nvidia-a100=", "write TYPE=POLICY"),
        ("=srjf", "no label of a node can have the value ''"),
        ("NVIDIA A100=srjf", "no label of a node can have the value 'NVIDIA A100'"),
        ("nvidia-a100=shortest", "There is no policy 'shortest'"),
        ("nvidia-a100=tiresias:treshold=5", "has no parameter 'treshold': did you mean 'threshold'"),
        ("nvidia-a10=srjf", "no node is of this type; did you mean 'nvidia-a100'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        plan(CLUSTER, "fifo", policy_for=[text])
    assert words in str(refusal.value)


def test_a_type_has_one_policy() -> None:
    with pytest.raises(UserError, match="the type 't4' already has a policy"):
        rules_by_type(["t4=fifo", "t4=srjf"])


def test_where_devices_are_only_counted_types_cannot_be_kept_apart() -> None:
    with pytest.raises(UserError, match="cannot keep GPU types apart"):
        plan(CLUSTER, "fifo", "none", ["nvidia-a100=srjf"])


def test_each_policy_gets_the_placement_that_it_was_made_for_unless_one_is_chosen() -> None:
    assert rules_by_type(["t4=dragon", "v100=fifo"]) == {"t4": ("dragon", "pack"), "v100": ("fifo", "stay")}
    assert rules_by_type(["t4=dragon"], "spread") == {"t4": ("dragon", "spread")}


def test_types_without_nodes_are_warned_about() -> None:
    rules = make_rules("fifo", "stay", by_type=rules_by_type(["t4=srjf"]))
    assert unknown_types(rules, a_snapshot([], [a_node("n0", labels={TYPE: "t4"})]).nodes) == []
    assert unknown_types(rules, a_snapshot([], [a_node("n0", labels={TYPE: "tpu"})]).nodes) == [
        "--policy-for t4: no node is of this type; choose one of: tpu."
    ]
    assert unknown_types(rules, a_snapshot([], 4).nodes) == [
        "--policy-for t4: no node is of this type; no node is labelled vodascheduler/accelerator or "
        "nvidia.com/gpu.product."
    ]


def test_an_operator_takes_several_types_as_one_setting() -> None:
    settings = OperatorSettings(policy="fifo", policy_for="nvidia-a100=srjf t4=tiresias:threshold=600")
    rules = rules_of(settings)
    assert {type_: type(each.policy).__name__ for type_, each in rules.by_type.items()} == {
        "nvidia-a100": "Srjf",
        "t4": "Tiresias",
    }
    assert rules_of(replace(settings, policy_for="")).by_type == {}


def a_journal(path: Path) -> Path:
    jobs = [
        a_job("long", 4, selector=A100, remaining=900),
        a_job("short", 4, selector=A100, remaining=9, submit=1),
        a_job("other", 4, remaining=9, submit=1),
    ]
    snapshot = a_snapshot(jobs, [a_node("n0", 4, labels=A100), a_node("n1", 4)], now=5.0)
    by_type = rules_by_type(["nvidia-a100=srjf"])
    with JournalWriter(path, policy="fifo", placement="stay", by_type=by_type) as journal:
        journal.record(snapshot, decide(snapshot, make_rules("fifo", "stay", by_type=by_type)))
    return path


def test_a_recorded_round_is_decided_again_type_by_type(tmp_path: Path) -> None:
    journal = a_journal(tmp_path / "journal")
    assert read_opening(journal).by_type == {"nvidia-a100": ("srjf", "stay")}
    again = replay(journal, 0)
    assert again["same"]
    assert running(again) == {"short", "other"}


def test_policies_that_would_start_a_job_are_tried_on_its_own_type(tmp_path: Path) -> None:
    """The policy of all other jobs is tried too."""
    told = explain(a_journal(tmp_path / "journal"), "long")
    (policies,) = [change["amount"] for change in told["changes"] if change["change"] == "policy"]
    assert "fifo" in policies
    assert "srjf" not in policies
