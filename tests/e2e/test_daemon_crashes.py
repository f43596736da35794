"""A killed daemon loses no acknowledged job and never runs two attempts of a job at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.local.kernel.crash_points import CRASH_STATUS
from tests.e2e.daemon_program import DaemonProcess
from tests.e2e.daemon_stress import POINTS, DaemonStress
from tests.e2e.replicas import Replicas, until


@pytest.fixture
def stress(tmp_path: Path) -> Iterator[DaemonStress]:
    stress = DaemonStress(tmp_path, seed=7)
    yield stress
    replicas = Replicas(tmp_path)
    replicas.folders = [path for path in tmp_path.glob("jobs/*/*/*") if (path / "launch.json").exists()]
    replicas.close()


def test_crash_at_named_points_loses_no_job(stress: DaemonStress) -> None:
    for point in POINTS:
        assert any(stress.run_until_kill(point) for _ in range(5)), f"{point} was never reached"
        stress.check_no_duplicate_run()
    stress.finish()


def test_kill_at_random_moments_loses_no_job(stress: DaemonStress) -> None:
    while stress.kills < 8:
        stress.run_until_kill()
    stress.finish()


def test_training_continues_while_no_daemon_runs(stress: DaemonStress) -> None:
    step = stress.state / "jobs" / "long" / "checkpoint" / "0.step"
    with DaemonProcess(stress.state) as daemon:
        daemon.ask("create", "long", 100)
        until(step.exists)
        daemon.kill()
    until(lambda: step.read_text() == "100")
    with DaemonProcess(stress.state) as daemon:
        until(lambda: daemon.ask("jobs")[0]["state"] == "completed")
        assert daemon.ask("jobs")[0]["attempt"] == 1


def test_crash_point_ends_the_daemon(stress: DaemonStress) -> None:
    with DaemonProcess(stress.state, crash_at="daemon.acknowledging") as daemon:
        assert daemon.ask("create", "a", 1) is None
        assert daemon.close() == CRASH_STATUS
    with DaemonProcess(stress.state) as daemon:
        assert [view["name"] for view in daemon.ask("jobs")] == ["a"]


def groups_of(state: Path) -> set[str]:
    """Return the control groups of the state folder, relative to their roots."""
    record = json.loads((state / "control.json").read_text())
    tops = [Path(top) for top in {*record["legacy"].values(), record["unified"] or ""} if top]
    return {str(path.relative_to(top)) for top in tops for path in top.rglob("*") if path.is_dir()}


def test_next_daemon_removes_empty_groups(stress: DaemonStress) -> None:
    with DaemonProcess(stress.state) as daemon:
        daemon.ask("create", "short", 1)
        until(lambda: daemon.ask("jobs")[0]["state"] == "completed")
        daemon.kill()
    if not (stress.state / "control.json").exists():
        pytest.skip("no control groups here: run as root, or in a delegated group")
    assert {"node0", "node1"} <= groups_of(stress.state)
    with DaemonProcess(stress.state, "1x1cpu") as daemon:
        daemon.ask("jobs")
        assert {name.partition("/")[0] for name in groups_of(stress.state)} == {"node0"}
    assert groups_of(stress.state) == set()


def test_second_daemon_on_one_state_folder_is_rejected(stress: DaemonStress) -> None:
    with DaemonProcess(stress.state) as daemon:
        assert daemon.is_ready
        other = DaemonProcess(stress.state)
        assert not other.is_ready
        assert other.close() != 0
