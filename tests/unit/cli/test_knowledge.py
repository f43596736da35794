"""`--knowledge`: in both commands, in their JSON, and refused in one sentence when it is not one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna


@pytest.mark.parametrize("knowledge", ["true", "learned", "noisy:0.3"])
def test_a_simulation_reports_what_its_policy_knew(sterna: Sterna, trace: Path, knowledge: str) -> None:
    asked = ("simulate", "--trace", trace, "--nodes", "1x8", "--policy", "srjf", "--json", "--knowledge", knowledge)
    run = sterna(*asked)
    assert run.code == 0
    assert run.document["knowledge"] == knowledge


def test_a_comparison_reports_the_knowledge_of_each_run(sterna: Sterna, trace: Path) -> None:
    asked = ("compare", "--trace", trace, "--nodes", "1x8", "--policies", "srjf,afs-l", "--cores", "1", "--json")
    document = sterna(*asked, "--knowledge", "learned").document
    assert {result["knowledge"] for result in document["results"]} == {"learned"}


@pytest.mark.parametrize("command", [("simulate", "--policy", "srjf"), ("compare",)])
@pytest.mark.parametrize("text", ["guessed", "noisy", "noisy:much", "noisy:-1"])
def test_what_is_no_knowledge_is_refused(sterna: Sterna, trace: Path, command: tuple[str, ...], text: str) -> None:
    run = sterna(*command, "--trace", trace, "--nodes", "1x8", "--knowledge", text)
    assert run.code == 2
    assert f"--knowledge {text}" in run.err
    assert run.out == ""
