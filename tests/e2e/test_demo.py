"""`sterna demo` for real, in short: it trains, compares, and leaves nothing behind, however it ends."""

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
PATIENCE_SECONDS = 240.0


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The demo with its temporary files in a folder of the test."""
    command = [sys.executable, "-m", "sterna.cli", "demo", "--listen", "127.0.0.1:0", *options]
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(SRC), "DEMO_TEST": str(folder)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )


def _hear_interrupts() -> None:
    """A suite that a shell runs in the background ignores interrupts, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def left_behind(folder: Path) -> tuple[list[str], list[int]]:
    """Files in the temporary folder, and processes that inherited the demo's environment."""
    mark = f"DEMO_TEST={folder}".encode()
    alive = [each.pid for each in processes() if not each.is_gone and has_variable(each.pid, mark)]
    return sorted(path.name for path in folder.iterdir()), alive


def assert_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + 10.0
    while left_behind(folder) != ([], []) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_behind(folder) == ([], [])


@pytest.mark.slow
def test_a_dozen_jobs_train_three_times_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    report = tmp_path / "demo.html"
    demo = started(folder, "--json", "--seconds", "2", "--repeats", "0", "--report", str(report))
    said, complaint = demo.communicate(timeout=PATIENCE_SECONDS)
    assert (demo.returncode, complaint) == (0, "")
    told = json.loads(said)
    assert [each["phase"] for each in told["phases"]] == ["equal", "fifo", "sterna"]
    for phase in told["phases"]:
        assert len(phase["jobs"]) == 12
        assert phase["lost_s"] == 0
        assert all(0 < seconds <= phase["longest_s"] + 1e-3 for seconds in phase["jobs"].values())
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert_nothing_left(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    demo = started(tmp_path, "--seconds", "60", "--repeats", "0")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(tmp_path.glob("sterna-demo-*/*/jobs/*/1/worker-0/shim.json")) and time.monotonic() < deadline:
        assert demo.poll() is None
        time.sleep(0.05)
    demo.send_signal(number)
    _, complaint = demo.communicate(timeout=PATIENCE_SECONDS)
    assert (demo.returncode, complaint) == (130, "")
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("seconds", ["1", "1e9", "-3", "nan"])
def test_an_impossible_length_is_refused_with_a_sentence(tmp_path: Path, seconds: str) -> None:
    demo = started(tmp_path, "--seconds", seconds)
    _, complaint = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 2
    assert complaint.startswith("sterna: --seconds")
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
