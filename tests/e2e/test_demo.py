"""Short runs of `sterna demo`: it trains, compares, and leaves no file and no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sterna.backends.local.kernel.proc_table import has_variable, processes

SRC = Path(__file__).resolve().parents[2] / "src"
TIMEOUT_SECONDS = 240.0


def start_demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start the demo with its temporary files in `folder`."""
    command = [sys.executable, "-m", "sterna.cli", "demo", "--listen", "127.0.0.1:0", *options]
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(SRC), "DEMO_TEST": str(folder)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_restore_sigint,
    )


def _restore_sigint() -> None:
    """Restore the default action: a suite run in the background by a shell ignores SIGINT, which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def leftovers(folder: Path) -> tuple[list[str], list[int]]:
    """Return the files in the temporary folder and the processes with the environment of the demo."""
    mark = f"DEMO_TEST={folder}".encode()
    alive = [each.pid for each in processes() if not each.is_gone and has_variable(each.pid, mark)]
    return sorted(path.name for path in folder.iterdir()), alive


def assert_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + 10.0
    while leftovers(folder) != ([], []) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leftovers(folder) == ([], [])


@pytest.mark.slow
def test_demo_trains_twelve_jobs_three_times_and_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    report = tmp_path / "demo.html"
    demo = start_demo(folder, "--json", "--seconds", "2", "--repeats", "0", "--report", str(report))
    output, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert (demo.returncode, errors) == (0, "")
    result = json.loads(output)
    assert [each["phase"] for each in result["phases"]] == ["equal", "fifo", "sterna"]
    for phase in result["phases"]:
        assert len(phase["jobs"]) == 12
        assert phase["lost_s"] == 0
        assert all(0 < seconds <= phase["longest_s"] + 1e-3 for seconds in phase["jobs"].values())
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert_nothing_left(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    demo = start_demo(tmp_path, "--seconds", "60", "--repeats", "0")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not list(tmp_path.glob("sterna-demo-*/*/jobs/*/1/worker-0/shim.json")) and time.monotonic() < deadline:
        assert demo.poll() is None
        time.sleep(0.05)
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert (demo.returncode, errors) == (130, "")
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("seconds", ["1", "1e9", "-3", "nan"])
def test_impossible_duration_is_rejected(tmp_path: Path, seconds: str) -> None:
    demo = start_demo(tmp_path, "--seconds", seconds)
    _, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert demo.returncode == 2
    assert errors.startswith("sterna: --seconds")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
