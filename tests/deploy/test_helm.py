"""The chart rendered by Helm itself; checks that need no Helm are in `test_rendered.py`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy import chart
from tests.kubernetes.binaries import found


@pytest.fixture(scope="module")
def helm() -> str:
    there = os.environ.get("HELM") or found("helm")
    if not there:
        pytest.skip("Helm is not here: install it, or build it with python -m tests.kubernetes.binaries helm")
    return str(there)


def _run(helm: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folders = {name: str(home) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    return subprocess.run(
        [helm, *arguments], env={**os.environ, **folders}, capture_output=True, text=True, check=False
    )


def _template(helm: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ("--namespace", chart.NAMESPACE, "--kube-version", "1.36.0")
    return _run(helm, home, "template", "sterna", str(chart.CHART), *where, *arguments)


def test_helm_finds_nothing_wrong_with_the_chart(helm: str, tmp_path: Path) -> None:
    done = _run(helm, tmp_path, "lint", "--strict", str(chart.CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_yields_the_objects_of_the_one_file(helm: str, tmp_path: Path) -> None:
    done = _template(helm, tmp_path)
    assert done.returncode == 0, done.stderr
    one_file = chart.objects_of_one_file()
    del one_file[chart.Name("Namespace", "", chart.NAMESPACE)]
    assert chart.objects_in(done.stdout) == one_file


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("install.fence", False),
        ("monitor.enabled", False),
        ("monitor.hostNetwork", True),
        ("monitor.hostFiles", True),
        ("definitions.tfJobs", False),
        ("operator.priorityClass", "system-cluster-critical"),
        ("operator.lease.name", "other"),
        ("image.tag", "1.2.3"),
        ("install.userRoles", False),
        ("operator.rateLimitSeconds", 2.5),
    ],
)
def test_helm_and_our_renderer_agree_on_every_switch(helm: str, tmp_path: Path, path: str, value: object) -> None:
    done = _template(helm, tmp_path, "--set-json", f"{path}={json.dumps(value)}")
    assert done.returncode == 0, done.stderr
    ours = chart.objects_of_chart(chart.changed(chart.default_values(), path, value))
    assert chart.objects_in(done.stdout) == ours


@pytest.mark.parametrize("wrong", ["operator.polcy=fifo", "operator.replicas=two", "fence=false"])
def test_helm_refuses_a_value_that_is_misspelt_or_of_another_type(helm: str, tmp_path: Path, wrong: str) -> None:
    done = _template(helm, tmp_path, "--set", wrong)
    assert done.returncode != 0
    assert "schema" in done.stderr or "not allowed" in done.stderr
