"""`sterna monitor` names a missing option in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.cli.main import main


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NODE_NAME", "SERVER_ENDPOINT", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --node NAME"),
        (["--node", "n", "--growth", "specom"], "did you mean 'specon'?"),
        (["--node", "n", "--ask-for", "some"], "choose one of: all, none, posted"),
        (["--node", "n", "--alpha", "-1"], "--alpha"),
        (["--node", "n", "--kubeconfig", "nowhere.yaml"], "nowhere.yaml"),
    ],
    ids=["no node", "growth", "asking", "alpha", "kubeconfig"],
)
def test_wrong_input_is_answered_with_a_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", *arguments]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_the_node_may_come_from_the_environment_as_container_migration_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DRAGON-60."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    assert main(["monitor", "--kubeconfig", "nowhere.yaml"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err
