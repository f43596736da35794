"""`sterna operator` rejects invalid options in one sentence before it connects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sterna.apps.operator import context_of, lease_times
from sterna.backends.kubernetes.leader import LeaseTimes
from sterna.cli.main import main
from sterna.kinds.context import KubeShare, ParseContext
from sterna.settings import LeaseSettings, OperatorSettings


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Write a kubeconfig of a cluster that is never contacted."""
    file = tmp_path / "config"
    cluster = {"name": "lab", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "lab", "context": {"cluster": "lab", "user": "me"}}
    users = [{"name": "me", "user": {}}]
    file.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "lab"})
    )
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lease-renew", "20"], "A Lease of 15 s that is given up after 20 s"),
        (["--lease-renew", "15"], "choose --lease-retry < --lease-renew < --lease-duration"),
        (["--lease-duration", "10.9", "--lease-renew", "10.5"], "A Lease of 10 s"),
        (["--lease-retry", "10"], "tried every 10 s"),
        (["--kubeshare", "yes"], "--kubeshare yes: there is no such choice: choose one of: both, off, only."),
        (["--gpu-resource", "amd.com/gpus"], "did you mean 'amd.com/gpu'?"),
    ],
)
def test_wrong_settings_are_answered_with_a_sentence(
    arguments: list[str], words: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", "--kubeconfig", kubeconfig, *arguments]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_the_lease_is_held_as_it_was_set() -> None:
    """DRAGON-51."""
    assert lease_times(LeaseSettings(duration_seconds=15.0, renew_seconds=5.0, retry_seconds=3.0)) == LeaseTimes(
        15, 5.0, 3.0
    )


def test_what_objects_leave_open_is_set_for_the_cluster() -> None:
    """DRAGON-10."""
    chosen = OperatorSettings(default_image="mine:1", gpu_resource="amd.com/gpu", kubeshare="only")
    assert context_of(chosen) == ParseContext("mine:1", "amd.com/gpu", KubeShare.ONLY)
    assert context_of(OperatorSettings()) == ParseContext()
