"""The commands of a local cluster with real processes: up, submit, wait, logs, down and up again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sterna
from tests.e2e.replicas import Replicas

TRAIN = """\
import sys, time
total, pause = int(sys.argv[1]), float(sys.argv[2])
for step in range(1, total + 1):
    print(f"step={step}/{total} loss={1 / step:.4f}", flush=True)
    time.sleep(pause)
"""
_SECONDS = 60


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run `sterna` with its own state folder; all processes are ended after the test."""
    state = tmp_path / "state"
    (tmp_path / "train.py").write_text(TRAIN)
    env = os.environ | {"STERNA_STATE": str(state), "PYTHONPATH": str(Path(sterna.__file__).parents[1])}

    def run(*arguments: str) -> Done:
        command = [sys.executable, "-m", "sterna.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=_SECONDS)
        return Done(done.returncode, done.stdout, done.stderr)

    yield run
    run("down")
    replicas = Replicas(state)
    replicas.folders = [path for path in state.glob("jobs/*/*/*") if (path / "launch.json").exists()]
    replicas.close()


def up(run: Run) -> str:
    """Start a cluster in the background and return its address."""
    start_demo = run("up", "--detach", "--nodes", "2x1cpu", "--listen", "127.0.0.1:0")
    assert start_demo.code == 0, start_demo.err
    return start_demo.out.splitlines()[0].removeprefix("Sterna runs: ")


def test_job_is_submitted_trains_and_is_shown(run: Run) -> None:
    url = up(run)
    assert run("submit", "--name", "a", "--", sys.executable, "train.py", "5", "0.05").code == 0
    assert run("wait", "a", "--for=completed", "--timeout", "30").code == 0
    assert run("logs", "a").out.splitlines()[-1] == "step=5/5 loss=0.2000"
    assert "100 %" in run("get", "jobs").out
    assert "Exit code:     0" in run("describe", "job", "a").out
    assert "started with 1 worker" in run("explain", "a").out
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/html"}), timeout=20) as page:
        assert b"<title>Sterna</title>" in page.read()
    assert run("down").code == 0
    assert run("get", "jobs").code == 2


def test_training_continues_without_the_daemon_and_is_recovered(run: Run) -> None:
    up(run)
    assert run("submit", "--name", "a", "--", sys.executable, "train.py", "40", "0.1").code == 0
    assert run("wait", "a", "--for=running", "--timeout", "30").code == 0
    assert run("down").code == 0
    up(run)
    assert run("wait", "a", "--for=completed", "--timeout", "40").code == 0
    job = json.loads(run("get", "job", "a", "-o", "json").out)[0]
    assert (job["attempt"], job["step"], job["lost_seconds"]) == (1, 40, 0.0)


def pid_of(run: Run, job: str) -> int:
    """Return the pid of the first replica; 0 while it is unknown, because a job counts as running from its start."""
    pid: int = json.loads(run("get", "job", job, "-o", "json").out)[0]["replicas"][0].get("pid", 0)
    return pid


def test_progress_written_without_a_daemon_is_read_later(run: Run) -> None:
    up(run)
    assert run("submit", "--name", "a", "--", sys.executable, "train.py", "20", "0.05").code == 0
    assert run("wait", "a", "--for=running", "--timeout", "30").code == 0
    pid = next(pid for _ in range(100) if (pid := pid_of(run, "a")))
    assert run("down").code == 0
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.02)
    up(run)
    assert run("wait", "a", "--for=completed", "--timeout", "40").code == 0
    assert json.loads(run("get", "job", "a", "-o", "json").out)[0]["step"] == 20


def test_second_cluster_on_one_state_folder_is_rejected(run: Run) -> None:
    up(run)
    for arguments in (["up"], ["up", "--detach"]):
        second = run(*arguments)
        assert second.code == 2
        assert "already" in second.err
        assert second.err.count("\n") == 1
    assert run("get", "nodes").code == 0


def test_failed_job_shows_its_exit_code(run: Run) -> None:
    up(run)
    run("submit", "--name", "bad", "--restart", "Never", "--", sys.executable, "-c", "import sys; sys.exit(3)")
    waited = run("wait", "bad", "--timeout", "30")
    assert waited.code == 1
    assert "exit code 3" in waited.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "many"], "--nodes many"),
        (["--listen", "nonsense"], "write HOST:PORT"),
        (["--policy", "typo"], "There is no policy 'typo'"),
        (["--state", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
@pytest.mark.parametrize("detached", [[], ["--detach"]], ids=["here", "detached"])
def test_failed_start_prints_one_line(run: Run, detached: list[str], arguments: list[str], sentence: str) -> None:
    done = run("up", *detached, *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1
