"""`--policy-for`: as often as wanted on the command line, or all at once from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna

DESCRIPTION = {
    "nodes": [
        {"name": "a", "gpus": 4, "labels": {"vodascheduler/accelerator": "nvidia-a100"}},
        {"name": "t", "gpus": 4, "labels": {"nvidia.com/gpu.product": "Tesla-T4"}},
    ],
    "jobs": [
        {"name": "one", "min": 1, "max": 4, "selector": {"vodascheduler/accelerator": "nvidia-a100"}},
        {"name": "two", "min": 1, "max": 4, "selector": {"nvidia.com/gpu.product": "Tesla-T4"}},
    ],
}
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "x"}}],
}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STERNA_OPERATOR_POLICY_FOR", raising=False)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    return path


def test_a_plan_takes_a_policy_for_each_of_several_types(sterna: Sterna, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(DESCRIPTION))
    types = ("--policy-for", "nvidia-a100=fifo", "--policy-for", "Tesla-T4=elastic-fifo")
    assert sterna("plan", "-f", file, "--policy", "srjf", *types, "--json").document["allocation"] == {
        "one": 1,
        "two": 4,
    }
    assert "started with 4 workers" in sterna("plan", "-f", file, "--policy", "srjf", *types).out


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        (["a100=fifo", "t4=fifoo"], "", "did you mean 'fifo'?"),
        (["a100=fifo", "a100=srjf"], "", "the type 'a100' already has a policy"),
        ([], "a100=fifo t4=tirasias", "did you mean 'tiresias'?"),
        ([], "a100=fifo t4", "--policy-for t4: write TYPE=POLICY"),
    ],
)
def test_an_operator_refuses_what_cannot_be_meant_before_it_asks_the_cluster(
    given: list[str],
    environment: str,
    words: str,
    sterna: Sterna,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if environment:
        monkeypatch.setenv("STERNA_OPERATOR_POLICY_FOR", environment)
    flags = [word for each in given for word in ("--policy-for", each)]
    run = sterna("operator", "--kubeconfig", kubeconfig, *flags)
    assert run.code == 2
    assert words in run.err
    assert run.err.count("\n") == 1
