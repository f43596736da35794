"""Control groups of the real kernel: CPU shares, cores, moves and removal take effect."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.local.cgroups.affinity import AffinityControl, has_autogroups
from sterna.backends.local.cgroups.probe import find_mounts
from sterna.backends.local.cgroups.select import Control, find_control
from sterna.backends.local.cgroups.v1 import LegacyControl
from sterna.backends.local.kernel import cgroup_files
from sterna.backends.local.supervisor.launcher import ReplicaPhase
from tests.e2e.hostile import BOMB, COUNTS
from tests.e2e.replicas import Replicas, is_running, numbers, until

SPIN = "while :; do :; done"


@pytest.fixture
def control(replicas: Replicas) -> Iterator[Control]:
    found = find_control(replicas.state)
    if isinstance(found, AffinityControl):
        pytest.skip("no control groups here: run as root, or in a delegated group")
    yield found
    _close(replicas, found)


def _close(replicas: Replicas, control: Control) -> None:
    for folder in replicas.folders:
        replicas.launcher.kill(folder)
        control.remove("", folder.parents[1].name)
    for node in ("node-0", "node-1"):
        control.remove_node(node)
    control.close()


def core() -> int:
    return min(os.sched_getaffinity(0))


def spin(replicas: Replicas, control: Control, node: str, job: str) -> Path:
    folder = replicas.folder(job)
    replicas.shell(folder, SPIN, groups=list(control.make_job(node, job)))
    return folder


def test_cpu_shares_divide_the_core_of_a_node(replicas: Replicas, control: Control) -> None:
    control.make_node("node-0", [core()])
    for job in ("large", "small"):
        spin(replicas, control, "node-0", job)
    control.set_cpu_share("node-0", "large", 8.0)
    control.set_cpu_share("node-0", "small", 0.5)
    until(lambda: (control.cpu_seconds("small") or 0) > 0.05)
    before = control.cpu_seconds("large") or 0, control.cpu_seconds("small") or 0
    until(lambda: (control.cpu_seconds("small") or 0) > before[1] + 0.05)
    large, small = (control.cpu_seconds("large") or 0) - before[0], (control.cpu_seconds("small") or 0) - before[1]
    assert large / small > 4, "the shares are sixteen to one"


def test_early_children_are_in_the_group(replicas: Replicas, control: Control) -> None:
    control.make_node("node-0", [core()])
    folder = replicas.folder()
    script = 'for i in 1 2 3; do sleep 1000 & echo $! >> "$STERNA_DIR/pids"; done; echo $$ >> "$STERNA_DIR/pids"; wait'
    groups = control.make_job("node-0", "job")
    replicas.shell(folder, script, groups=list(groups))
    until(lambda: len(numbers(folder / "pids")) == 4)
    for group in groups:
        assert set(numbers(folder / "pids")) <= set(cgroup_files.all_members(group)), group


def test_running_job_moves_to_other_cores_in_place(replicas: Replicas, control: Control) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core cannot be two nodes")
    control.make_node("node-0", cores[:1])
    control.make_node("node-1", cores[1:2])
    folder = spin(replicas, control, "node-0", "job")
    pid = replicas.until(folder, ReplicaPhase.RUNNING).pid
    until(lambda: os.sched_getaffinity(pid) == set(cores[:1]))
    control.move("job", "node-0", "node-1")
    assert os.sched_getaffinity(pid) == set(cores[1:2])
    assert replicas.launcher.inspect(folder).pid == pid
    replicas.launcher.stop(folder, 1.0, "test")
    replicas.until(folder, ReplicaPhase.ENDED)


def test_freezer_ends_a_fork_bomb(replicas: Replicas) -> None:
    """Kernels with cgroup v1 only have no `cgroup.kill`."""
    found = find_mounts()
    roots = {name: os.path.join(folder, "sterna-freezer-test") for name, folder in found.legacy.items()}
    if not {"cpu", "freezer"} <= roots.keys() or os.geteuid() != 0:
        pytest.skip("no version 1 freezer here, or no right to use it")
    control = LegacyControl(cgroup_files, roots, unified=None)
    try:
        control.make_node("node-0", [core()])
        folder = replicas.folder()
        replicas.python(folder, BOMB, groups=list(control.make_job("node-0", "job")))
        until(lambda: len(numbers(folder / "pids")) >= COUNTS["bomb"])
        replicas.launcher.stop(folder, 0.0, "test")
        replicas.until(folder, ReplicaPhase.ENDED)
        assert not any(is_running(pid) for pid in numbers(folder / "pids"))
    finally:
        _close(replicas, control)


def test_groups_of_an_ended_replica_are_removed(replicas: Replicas, control: Control) -> None:
    control.make_node("node-0", [core()])
    groups = control.make_job("node-0", "job")
    replicas.shell(replicas.folder(), "exit 0", groups=list(groups))
    replicas.until(replicas.folder(), ReplicaPhase.ENDED)
    assert [below for group in groups for below in cgroup_files.subgroups(group) if "replica" in below] == []


def test_kernel_error_is_raised(control: Control) -> None:
    control.make_node("node-0", [core()])
    with pytest.raises(OSError, match="cpuset"):
        control.make_node("node-1", [4095])


# Without control groups.


def test_move_without_groups_sets_the_affinity(replicas: Replicas) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core cannot be two nodes")
    control = AffinityControl(str(replicas.state / "groups"))
    control.make_node("node-0", cores[:1])
    control.make_node("node-1", cores[1:2])
    folder = replicas.folder()
    script = 'setsid sh -c "sleep 1000" & echo $! > "$STERNA_DIR/pids"; ' + SPIN
    replicas.shell(folder, script, groups=list(control.make_job("node-0", "job")), cpus=cores[:1])
    pid = replicas.until(folder, ReplicaPhase.RUNNING).pid
    until(lambda: len(numbers(folder / "pids")) == 1)
    assert os.sched_getaffinity(pid) == set(cores[:1])
    control.move("job", "node-0", "node-1")
    for each in (pid, *numbers(folder / "pids")):
        assert os.sched_getaffinity(each) == set(cores[1:2])


def test_cpu_share_without_groups_sets_the_autogroup(replicas: Replicas) -> None:
    if not has_autogroups():
        pytest.skip("this kernel has no autogroups")
    control = AffinityControl(str(replicas.state / "groups"))
    control.make_node("node-0", [core()])
    folder = replicas.folder()
    replicas.shell(folder, "while :; do sleep 1; done", groups=list(control.make_job("node-0", "job")))
    pid = replicas.until(folder, ReplicaPhase.RUNNING).pid
    control.set_cpu_share("node-0", "job", 0.25)
    assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == "6"
    control.remove("node-0", "job")
    assert cgroup_files.subgroups(str(replicas.state / "groups" / "node-0")) == []


def test_nice_value_applies_to_the_autogroup(replicas: Replicas) -> None:
    if not has_autogroups():
        pytest.skip("this kernel has no autogroups")
    folder = replicas.folder()
    replicas.shell(folder, "while :; do sleep 1; done", nice=7)
    pid = replicas.until(folder, ReplicaPhase.RUNNING).pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == 7
    assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == "7"
