"""A daemon that is killed at any moment loses nothing it acknowledged and never has two attempts of a job at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.local.kernel.crash_points import CRASH_STATUS
from tests.e2e.daemon_program import DaemonProcess
from tests.e2e.daemon_stress import POINTS, Stress
from tests.e2e.replicas import Replicas, until


@pytest.fixture
def stress(tmp_path: Path) -> Iterator[Stress]:
    made = Stress(tmp_path, seed=7)
    yield made
    replicas = Replicas(tmp_path)
    replicas.folders = [path for path in tmp_path.glob("jobs/*/*/*") if (path / "launch.json").exists()]
    replicas.close()


def test_dying_at_named_points_loses_nothing(stress: Stress) -> None:
    for point in POINTS:
        assert any(stress.volley(point) for _ in range(5)), f"{point} was never reached"
        stress.check_nobody_ran_twice()
    stress.finish()


def test_dying_at_random_moments_loses_nothing(stress: Stress) -> None:
    while stress.kills < 8:
        stress.volley()
    stress.finish()


def test_training_goes_on_while_there_is_no_daemon(stress: Stress) -> None:
    step = stress.state / "jobs" / "long" / "checkpoint" / "0.step"
    with DaemonProcess(stress.state) as daemon:
        daemon.ask("create", "long", 100)
        until(step.exists)
        daemon.kill()
    until(lambda: step.read_text() == "100")
    with DaemonProcess(stress.state) as daemon:
        until(lambda: daemon.ask("jobs")[0]["state"] == "completed")
        assert daemon.ask("jobs")[0]["attempt"] == 1


def test_a_crash_point_does_end_the_daemon(stress: Stress) -> None:
    with DaemonProcess(stress.state, crash_at="daemon.acknowledging") as daemon:
        assert daemon.ask("create", "a", 1) is None
        assert daemon.close() == CRASH_STATUS
    with DaemonProcess(stress.state) as daemon:
        assert [view["name"] for view in daemon.ask("jobs")] == ["a"]


def groups_of(state: Path) -> set[str]:
    """What there is of the state folder's own control groups, below their tops."""
    record = json.loads((state / "control.json").read_text())
    tops = [Path(top) for top in {*record["legacy"].values(), record["unified"] or ""} if top]
    return {str(path.relative_to(top)) for top in tops for path in top.rglob("*") if path.is_dir()}


def test_empty_groups_of_a_killed_daemon_are_removed_by_the_next(stress: Stress) -> None:
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


def test_a_second_daemon_on_the_same_folder_is_refused(stress: Stress) -> None:
    with DaemonProcess(stress.state) as daemon:
        assert daemon.is_ready
        other = DaemonProcess(stress.state)
        assert not other.is_ready
        assert other.close() != 0
