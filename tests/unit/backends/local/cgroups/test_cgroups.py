"""Control groups of nodes and jobs for cgroup v1, v2 and plain affinity, on a fake kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sterna.backends.local.cgroups.affinity import AffinityControl
from sterna.backends.local.cgroups.probe import CgroupMounts, parse_mounts
from sterna.backends.local.cgroups.select import Control, find_control
from sterna.backends.local.cgroups.v1 import LegacyControl
from sterna.backends.local.cgroups.v2 import UnifiedControl
from tests.fakes.cgroup_kernel import FakeCgroupKernel

CPU, CPUSET, CPUACCT, MEMORY, FREEZER, V2 = "/v1/cpu", "/v1/cpuset", "/v1/cpuacct", "/v1/memory", "/v1/freezer", "/v2"

Hierarchy = tuple[FakeCgroupKernel, Control]


def legacy_kernel(is_joint: bool = False) -> FakeCgroupKernel:
    """Version 1; `is_joint`: weights and accounts in one hierarchy, as most distributions mounted them."""
    kernel = FakeCgroupKernel()
    if is_joint:
        kernel.mount_legacy(CPU, "cpu", "cpuacct")
    else:
        kernel.mount_legacy(CPU, "cpu")
        kernel.mount_legacy(CPUACCT, "cpuacct")
    kernel.mount_legacy(CPUSET, "cpuset", cpuset_cpus="0-3", cpuset_mems="0")
    kernel.mount_legacy(MEMORY, "memory")
    kernel.mount_legacy(FREEZER, "freezer")
    return kernel


def legacy_control(kernel: FakeCgroupKernel, is_joint: bool = False) -> LegacyControl:
    folders = {
        "cpu": CPU,
        "cpuset": CPUSET,
        "cpuacct": CPU if is_joint else CPUACCT,
        "memory": MEMORY,
        "freezer": FREEZER,
    }
    return LegacyControl(kernel, {name: f"{folder}/sterna" for name, folder in folders.items()})


def v2_kernel(*controllers: str) -> FakeCgroupKernel:
    kernel = FakeCgroupKernel()
    kernel.mount_unified(V2, *(controllers or ("cpu", "cpuset", "memory", "pids")))
    return kernel


def controls() -> list[Hierarchy]:
    apart, joint, unified = legacy_kernel(), legacy_kernel(is_joint=True), v2_kernel()
    return [
        (apart, legacy_control(apart)),
        (joint, legacy_control(joint, is_joint=True)),
        (unified, UnifiedControl(unified, f"{V2}/sterna")),
    ]


@pytest.fixture(params=["v1", "v1 joint", "v2"])
def hierarchy(request: pytest.FixtureRequest) -> Hierarchy:
    kernel, control = controls()[["v1", "v1 joint", "v2"].index(request.param)]
    control.make_node("node-0", [0, 1], 1 << 30)
    control.make_node("node-1", [2, 3])
    return kernel, control


def start(kernel: FakeCgroupKernel, control: Control, pid: int, node: str, job: str) -> None:
    kernel.run(pid)
    for group in control.make_job(node, job):
        kernel.write(group, "cgroup.procs", str(pid))


def weight_of(kernel: FakeCgroupKernel, folder: str) -> int:
    for top in (f"{CPU}/sterna", f"{V2}/sterna"):
        for name in ("cpu.shares", "cpu.weight"):
            if value := kernel.read(os.path.join(top, folder).rstrip("/"), name):
                return int(value)
    raise AssertionError(f"no weight of {folder}")


def test_node_weight_is_proportional_to_its_cores(
    hierarchy: Hierarchy,
) -> None:
    kernel, _ = hierarchy
    node = weight_of(kernel, "node-0")
    assert node == weight_of(kernel, "node-1")
    assert weight_of(kernel, "") == 2 * node


def test_cpu_share_changes_the_weight_of_the_job_only(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    control.make_job("node-0", "a")
    equal, node = weight_of(kernel, "node-0/a"), weight_of(kernel, "node-0")
    control.set_cpu_share("node-0", "a", 0.25)
    assert weight_of(kernel, "node-0/a") == equal // 4
    assert weight_of(kernel, "node-0") == node
    control.make_job("node-0", "a")
    assert weight_of(kernel, "node-0/a") == equal // 4, "making it again must not change it"


@pytest.mark.parametrize("weight", [0.0, 1e-9, 1e9])
def test_cpu_share_is_clamped_to_the_range_of_the_kernel(hierarchy: Hierarchy, weight: float) -> None:
    kernel, control = hierarchy
    control.make_job("node-0", "a")
    control.set_cpu_share("node-0", "a", weight)
    assert weight_of(kernel, "node-0/a") in {1, 2, 10000, 262144}


def test_cpuset_and_memory_limit_are_set_on_the_node(hierarchy: Hierarchy) -> None:
    kernel, _ = hierarchy
    cpus = {kernel.read(f"{top}/sterna/node-0", "cpuset.cpus") for top in (CPUSET, V2)}
    limits = {
        kernel.read(f"{MEMORY}/sterna/node-0", "memory.limit_in_bytes"),
        kernel.read(f"{V2}/sterna/node-0", "memory.max"),
    }
    assert cpus == {"0,1", ""}
    assert limits == {str(1 << 30), ""}
    assert not kernel.has(f"{MEMORY}/sterna/node-1", "cgroup.procs"), "no limit, no group"


def test_job_moves_with_all_its_processes_and_its_cpu_share(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    for pid in (101, 102, 103):
        start(kernel, control, pid, "node-0", "a")
    start(kernel, control, 200, "node-0", "b")
    control.set_cpu_share("node-0", "a", 0.5)
    weight = weight_of(kernel, "node-0/a")
    control.move("a", "node-0", "node-1")
    for pid in (101, 102, 103):
        assert any("node-1" in group for group in kernel.groups_of(pid))
        assert not any("node-0" in group for group in kernel.groups_of(pid) if "memory" not in group)
    assert weight_of(kernel, "node-1/a") == weight
    assert any("node-0" in group for group in kernel.groups_of(200))


def test_child_forked_during_a_move_is_moved(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    start(kernel, control, 101, "node-0", "a")
    born: list[int] = []

    def fork_once_per_hierarchy(pid: int, group: str) -> None:
        if len(born) < 5:
            born.append(300 + len(born))
            kernel.fork(pid, born[-1])

    kernel.on_move = fork_once_per_hierarchy
    control.move("a", "node-0", "node-1")
    assert born
    for pid in born:
        assert not any("node-0" in group for group in kernel.groups_of(pid) if "memory" not in group), pid


def test_process_that_exits_during_a_move_is_ignored(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    for pid in (101, 102):
        start(kernel, control, pid, "node-0", "a")

    def end_the_other(pid: int, group: str) -> None:
        for key in [key for key in kernel.place if key[1] == 102]:
            del kernel.place[key]

    kernel.on_move = end_the_other
    control.move("a", "node-0", "node-1")


def test_cpu_time_before_a_move_counts(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    start(kernel, control, 101, "node-0", "a")
    _use(kernel, "a", 2.0)
    control.move("a", "node-0", "node-1")
    _use(kernel, "a", 1.0, node="node-1")
    assert control.cpu_seconds("a") == pytest.approx(3.0)
    assert control.cpu_seconds("unknown") == 0.0


def _use(kernel: FakeCgroupKernel, job: str, seconds: float, node: str = "node-0") -> None:
    for group, files in kernel.files.items():
        if os.path.basename(group) == job and os.path.basename(os.path.dirname(group)) in (node, "all"):
            if "cpuacct.usage" in files:
                files["cpuacct.usage"] = str(int(files["cpuacct.usage"]) + int(seconds * 1e9))
            elif "cpu.stat" in files:
                files["cpu.stat"] = f"usage_usec {int(files['cpu.stat'].split()[1]) + int(seconds * 1e6)}"


def test_removed_job_leaves_no_group(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    control.make_job("node-0", "a")
    control.move("a", "node-0", "node-1")
    control.remove("node-1", "a")
    assert [group for group in kernel.files if os.path.basename(group) == "a"] == []
    control.remove_node("node-0")
    control.remove_node("node-1")
    control.close()
    assert [group for group in kernel.files if "sterna" in group] == []


def test_close_keeps_groups_of_running_processes(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    start(kernel, control, 101, "node-0", "a")
    control.close()
    assert any("node-0/a" in group for group in kernel.groups_of(101))


def test_sweep_removes_only_empty_groups(hierarchy: Hierarchy) -> None:
    kernel, control = hierarchy
    start(kernel, control, 101, "node-0", "runs")
    control.make_job("node-0", "starting")
    control.make_job("node-0", "over")
    control.make_job("node-1", "over")
    control.sweep({"starting"}, {"node-0"})
    left = {group for group in kernel.files if "/sterna/" in group}
    assert [group for group in left if os.path.basename(group) == "over"] == []
    assert [group for group in left if os.path.basename(group) == "node-1"] == []
    assert {"runs", "starting", "node-0"} <= {os.path.basename(group) for group in left}
    assert any("node-0/runs" in group for group in kernel.groups_of(101))
    control.make_node("node-0", [0, 1])
    assert weight_of(kernel, "") == weight_of(kernel, "node-0")


def test_sweep_removes_folders_without_control_groups(tmp_path: Path) -> None:
    control = AffinityControl(str(tmp_path / "groups"))
    control.make_node("node-0", [0])
    control.make_node("node-1", [0])
    for node, job in (("node-0", "kept"), ("node-0", "over"), ("node-1", "over")):
        control.make_job(node, job)
    control.sweep({"kept"}, {"node-0"})
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_dir()) == [
        "groups",
        "groups/node-0",
        "groups/node-0/kept",
    ]


def test_description_names_the_available_controllers() -> None:
    assert legacy_control(legacy_kernel()).words == "cgroup v1: weight, cpuset, memory"
    assert UnifiedControl(v2_kernel(), f"{V2}/sterna").words == "cgroup v2: weight, cpuset, memory"
    assert UnifiedControl(v2_kernel("cpu", "memory"), f"{V2}/sterna").words == "cgroup v2: weight, memory"


# Selection of the control.

MOUNTS = """\
24 1 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro
25 24 0:23 / /v1/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
26 24 0:24 / /v1/cpuset rw - cgroup cgroup rw,cpuset
27 24 0:25 / /v2 rw - cgroup2 cgroup rw
"""


def test_parse_mounts_finds_joint_hierarchies() -> None:
    found = parse_mounts(MOUNTS, "3:cpu,cpuacct:/\n2:cpuset:/\n0::/\n")
    assert found == CgroupMounts(
        {"cpu": "/v1/cpu,cpuacct", "cpuacct": "/v1/cpu,cpuacct", "cpuset": "/v1/cpuset"}, "/v2", "/v2"
    )


def test_parse_mounts_finds_the_own_group_in_a_partly_mounted_tree(tmp_path: Path) -> None:
    (tmp_path / "user.slice").mkdir()
    line = f"27 24 0:25 {{root}} {tmp_path} rw - cgroup2 cgroup rw\n"
    own = "0::/box/user.slice\n"
    assert parse_mounts(line.format(root="/box"), own).unified == str(tmp_path / "user.slice")
    assert parse_mounts(line.format(root="/box/user.slice"), own).unified == str(tmp_path)
    assert parse_mounts(line.format(root="/other"), own).unified == str(tmp_path), "not to be seen: the top of what is"


def test_parse_mounts_without_control_groups_is_empty() -> None:
    assert parse_mounts("24 1 0:22 / / rw - ext4 disk rw\n", "") == CgroupMounts({})


def test_version_1_is_selected_where_it_has_the_cpu_controller(tmp_path: Path) -> None:
    kernel = legacy_kernel()
    kernel.mount_unified(V2)
    control = find_control(tmp_path, CgroupMounts({"cpu": CPU, "cpuset": CPUSET}, V2, V2), kernel)
    assert isinstance(control, LegacyControl)
    control.make_node("node-0", [0])
    assert any(group.startswith(V2) for group in control.make_job("node-0", "a")), "version 2 ends a group at once"


def test_affinity_is_selected_without_permission_to_create_groups(tmp_path: Path) -> None:
    kernel = legacy_kernel()
    kernel.locked.update(kernel.files)
    control = find_control(tmp_path, CgroupMounts({"cpu": CPU}), kernel)
    assert isinstance(control, AffinityControl)
    assert control.words.startswith("affinity")


def delegated_group_kernel(*inside: int) -> FakeCgroupKernel:
    """cgroup v2 with a delegated group below groups that another user owns."""
    kernel = v2_kernel()
    for group in (f"{V2}/user.slice", f"{V2}/user.slice/mine"):
        kernel.make(group)
    kernel.write(V2, "cgroup.subtree_control", "+cpu +cpuset +memory")
    kernel.write(f"{V2}/user.slice", "cgroup.subtree_control", "+cpu +cpuset +memory")
    kernel.locked.update({V2, f"{V2}/user.slice"})
    for pid in inside:
        kernel.run(pid, f"{V2}/user.slice/mine")
    return kernel


def test_delegated_group_with_only_the_daemon_is_used(tmp_path: Path) -> None:
    kernel = delegated_group_kernel(os.getpid())
    control = find_control(tmp_path, CgroupMounts({}, f"{V2}/user.slice/mine", V2), kernel)
    assert isinstance(control, UnifiedControl)
    assert kernel.groups_of(os.getpid()) == {f"{V2}/user.slice/mine/supervisor"}


def test_group_with_other_processes_is_not_used(tmp_path: Path) -> None:
    kernel = delegated_group_kernel(os.getpid(), 4242)
    control = find_control(tmp_path, CgroupMounts({}, f"{V2}/user.slice/mine", V2), kernel)
    assert isinstance(control, AffinityControl)
    assert kernel.groups_of(4242) == {f"{V2}/user.slice/mine"}


def test_empty_writable_parent_group_is_used(tmp_path: Path) -> None:
    kernel = delegated_group_kernel()
    kernel.make(f"{V2}/user.slice/mine/shell")
    for pid in (os.getpid(), 4242):
        kernel.run(pid, f"{V2}/user.slice/mine/shell")
    control = find_control(tmp_path, CgroupMounts({}, f"{V2}/user.slice/mine/shell", V2), kernel)
    assert isinstance(control, UnifiedControl)
    assert any(group.startswith(f"{V2}/user.slice/mine/sterna-") for group in kernel.files)


def test_daemon_started_in_another_group_finds_its_groups(tmp_path: Path) -> None:
    kernel = legacy_kernel()
    first = find_control(tmp_path, CgroupMounts({"cpu": CPU, "cpuset": CPUSET}), kernel)
    first.make_node("node-0", [0])
    groups = first.make_job("node-0", "a")
    kernel.make(f"{CPU}/login-2")
    again = find_control(tmp_path, CgroupMounts({"cpu": f"{CPU}/login-2", "cpuset": CPUSET}), kernel)
    assert again.make_job("node-0", "a") == groups
