"""Process trees that ignore signals are ended completely, with and without control groups and shim."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.local.cgroups.affinity import AffinityControl
from sterna.backends.local.cgroups.select import Control, find_control
from sterna.backends.local.supervisor.launcher import ReplicaPhase
from tests.e2e.hostile import COUNTS, TREES
from tests.e2e.replicas import Replicas, is_running, living, numbers, until


@pytest.fixture(params=["in groups", "without groups"])
def groups(request: pytest.FixtureRequest, replicas: Replicas) -> Iterator[list[str]]:
    """Control groups of a launch spec: real ones if the machine allows them, or none."""
    if request.param == "without groups":
        yield []
        return
    control = find_control(replicas.state)
    if isinstance(control, AffinityControl):
        pytest.skip("no control groups here: run as root, or in a delegated group")
    control.make_node("node-0", sorted(os.sched_getaffinity(0)))
    yield list(control.make_job("node-0", "job"))
    for folder in replicas.folders:
        replicas.launcher.kill(folder)
    _close(control)


def _close(control: Control) -> None:
    control.remove("node-0", "job")
    control.remove_node("node-0")
    control.close()


def _start_tree(replicas: Replicas, name: str, groups: list[str]) -> Path:
    """Start a tree and wait until all its processes run."""
    folder = replicas.folder()
    replicas.python(folder, TREES[name], groups=groups)
    until(lambda: len(numbers(folder / "pids")) >= COUNTS[name])
    replicas.until(folder, ReplicaPhase.RUNNING)
    return folder


def _survivors(folder: Path) -> list[int]:
    noted = [pid for pid in numbers(folder / "pids") if is_running(pid)]
    marked = f"STERNA_DIR={folder}".encode()
    return noted + [each.pid for each in living() if marked in _environment(each.pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("name", TREES)
def test_shim_ends_all_processes_of_its_tree(replicas: Replicas, name: str, groups: list[str]) -> None:
    folder = _start_tree(replicas, name, groups)
    replicas.launcher.stop(folder, 0.0, "test")
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert _survivors(folder) == []
    assert found.exit is not None
    assert found.exit.signal == signal.SIGKILL


@pytest.mark.parametrize("name", TREES)
def test_tree_of_a_killed_shim_is_ended(replicas: Replicas, name: str, groups: list[str]) -> None:
    """The zygote inherits the orphans and ends them, also while no daemon runs."""
    folder = _start_tree(replicas, name, groups)
    os.kill(replicas.launcher.inspect(folder).shim_pid, signal.SIGKILL)
    until(lambda: replicas.launcher.inspect(folder).phase is ReplicaPhase.LOST)
    until(lambda: _survivors(folder) == [])


@pytest.mark.parametrize("name", [name for name in TREES if name not in ("forgetful", "runner")])
def test_launcher_ends_the_tree_without_shim_and_zygote(replicas: Replicas, name: str, groups: list[str]) -> None:
    folder = _start_tree(replicas, name, groups)
    os.kill(replicas.zygote(), signal.SIGKILL)
    os.kill(replicas.launcher.inspect(folder).shim_pid, signal.SIGKILL)
    until(lambda: replicas.launcher.inspect(folder).phase is ReplicaPhase.LOST)
    assert replicas.launcher.kill(folder)
    assert _survivors(folder) == []


def test_groups_find_a_detached_process_without_shim_and_zygote(replicas: Replicas, groups: list[str]) -> None:
    if not groups:
        pytest.skip("without groups nothing leads from a daemon with an empty environment to its folder")
    folder = _start_tree(replicas, "forgetful", groups)
    os.kill(replicas.zygote(), signal.SIGKILL)
    os.kill(replicas.launcher.inspect(folder).shim_pid, signal.SIGKILL)
    until(lambda: replicas.launcher.inspect(folder).phase is ReplicaPhase.LOST)
    assert replicas.launcher.kill(folder)
    assert _survivors(folder) == []


def test_kill_leaves_sibling_replicas_running(replicas: Replicas, groups: list[str]) -> None:
    folder = _start_tree(replicas, "wide", groups)
    other = replicas.folder(replica="worker-1")
    replicas.shell(other, "while :; do sleep 0.05; done", groups=groups)
    sibling = replicas.until(other, ReplicaPhase.RUNNING).pid
    assert replicas.launcher.kill(folder)
    assert _survivors(folder) == []
    assert is_running(sibling)
