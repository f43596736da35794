"""The verbs of the command line on a real API server, with an operator that acts and kubelets that have logs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.binaries import need
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import FakeNodes, Habits, fleet
from tests.kubernetes.operated import JOBS, ROOT, STEADY, Operated, a_training_job, install, nodes_of
from tests.kubernetes.operator_process import OperatorProcess
from tests.unit.cli.conftest import Run

Sterna = Callable[..., Run]


@pytest.fixture(scope="module")
def with_logs(full_plane: ControlPlane) -> Iterator[Operated]:
    """Two nodes of four GPUs."""
    with full_plane.api() as api:
        install(api)
        nodes = FakeNodes(full_plane.kubeconfig, fleet(2, gpus=4), Habits(has_logs=True))
        with nodes, OperatorProcess(full_plane.kubeconfig, *STEADY) as operator:
            cluster = Operated(full_plane, nodes, operator, api)
            cluster.until(lambda: operator.leads, "an operator that leads")
            yield cluster


@pytest.fixture
def lab(with_logs: Operated) -> Iterator[Operated]:
    yield with_logs
    with_logs.delete_all()


@pytest.fixture
def sterna(lab: Operated, capsys: pytest.CaptureFixture[str]) -> Sterna:
    """`sterna ... --kubeconfig F`."""
    from sterna.cli.main import main  # only now: what is imported above keeps quiet what typer's import complains about

    def run(*arguments: str | Path, kubeconfig: Path = lab.plane.kubeconfig) -> Run:
        capsys.readouterr()
        command, *rest = map(str, arguments)
        code = main([command, "--kubeconfig", str(kubeconfig), *rest])
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


def write_manifest(folder: Path, *documents: dict[str, Any]) -> Path:
    path = folder / "jobs.yaml"
    path.write_text("---\n".join(yaml.safe_dump(each) for each in documents), encoding="utf-8")
    return path


def test_a_job_from_its_creation_to_its_end(sterna: Sterna, lab: Operated, tmp_path: Path) -> None:
    job = a_training_job("a", workers="1:2", resizing="restart", fake={"log": "step 1\nstep 2\n", "run_seconds": 3600})
    run = sterna("create", "-f", write_manifest(tmp_path, job), "-q")
    assert (run.code, run.out, run.err) == (0, "a\n", "")
    assert sterna("wait", "a", "--for=running", "--timeout", "180").code == 0
    lab.until_running("a", 2)
    (row,) = sterna("get", "jobs", "-o", "json").document
    assert (row["name"], row["state"], row["workers"], row["kind"]) == ("a", "running", 2, "TrainingJob")
    described = sterna("describe", "job", "a").out
    assert "worker-1" in described
    assert "Created 2 pods" in lab.until(lambda: _with_events(sterna), "the event of its start")
    assert sterna("logs", "a").out == "step 1\nstep 2\n"
    assert sterna("logs", "a", "--tail", "1").out == "step 2\n"
    document = sterna("explain", "a", "--json").document
    assert (document["state"], document["events"][0]["event"]) == ("runs", "submitted")
    for index in range(2):
        lab.nodes.end(f"a-worker-{index}")
    assert sterna("wait", "a", "--for=completed", "--timeout", "180").code == 0
    assert sterna("get", "jobs").out.splitlines()[1].split()[1] == "Completed"
    assert sterna("delete", "a").out == "a is deleted.\n"
    assert sterna("wait", "a", "--for=deleted", "--timeout", "180").code in (0, 2)  # it may be gone already


def _with_events(sterna: Sterna) -> str:
    out = sterna("describe", "job", "a").out
    return out if "Created 2 pods" in out else ""


def test_a_job_that_cannot_run_is_explained(sterna: Sterna, lab: Operated) -> None:
    lab.submit(a_training_job("big", workers=9))
    lab.until(lambda: lab.job("big").get("status", {}).get("reason"), "a verdict")
    document = sterna("explain", "big", "--json").document
    assert document["state"] == "waits"
    assert "cannot run" in document["events"][-1]["sentence"]
    assert document["changes"][0]["sentence"] == "1 more device would start it now."


def test_a_job_is_scaled_moved_and_driven_off_its_node(sterna: Sterna, lab: Operated) -> None:
    lab.submit(a_training_job("a", workers=1))
    (before,) = nodes_of(lab.until_running("a", 1))
    other = next(name for name in ("node-0000", "node-0001") if name != before)
    assert sterna("scale", "a", "2").out == "a may have 2 to 2 workers.\n"
    lab.until_running("a", 2)
    lab.until_phase("a", "Running")
    run = sterna("migrate", "a", other)
    assert (run.code, run.err) == (0, "")
    lab.until(lambda: nodes_of(lab.pods("a", "Running")) == [other] * 2, "both workers elsewhere")
    lab.until_phase("a", "Running")
    assert sterna("drain", other).out in (f"{other} is draining.\n", f"{other} is cordoned.\n")
    lab.until(lambda: nodes_of(lab.pods("a", "Running")) == [before] * 2, "both workers back")
    rows = {row["name"]: row for row in sterna("get", "nodes", "-o", "json").document}
    assert (rows[other]["state"], rows[before]["jobs"]) == ("cordoned", ["default/a"])
    assert sterna("uncordon", other).out == f"{other} is ready.\n"


def test_rejection_of_one_object_rejects_all_in_the_servers_words(
    sterna: Sterna, lab: Operated, tmp_path: Path
) -> None:
    long = a_training_job("b", image="i" * 2000)
    run = sterna("create", "-f", write_manifest(tmp_path, a_training_job("a"), long))
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "spec.image" in run.err
    assert "1024" in run.err
    assert lab.api.items(JOBS) == []


def test_user_without_permission_reads_which_one_is_missing(sterna: Sterna, lab: Operated) -> None:
    stranger = lab.plane.user("bob")
    run = sterna("get", "jobs", kubeconfig=stranger)
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert run.err.startswith("sterna: You (bob) may not list ")
    assert "in the namespace 'default'" in run.err


def test_kubectl_finds_its_plugin(lab: Operated, tmp_path: Path) -> None:
    lab.submit(a_training_job("a"))
    lab.until_running("a", 1)
    plugin = tmp_path / "kubectl-sterna"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nfrom sterna.cli.plugin import run\nsys.exit(run())\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "KUBECONFIG": str(lab.plane.kubeconfig),
    }
    command = [str(need("kubectl")), "sterna", "get", "jobs", "--namespace", "default"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1].split()[:2] == ["a", "Running"]
