"""In-memory control groups with the rules of the kernel that affect Sterna: entering groups, files, writes.

Each hierarchy is named by its mount point. In version 2, controllers are enabled level by level, and a group that
enables controllers for its children holds no processes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

LEGACY_FILES = {
    "cpu": {"cpu.shares": "1024"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "cpuacct": {"cpuacct.usage": "0"},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
    "freezer": {"freezer.state": "THAWED"},
}
UNIFIED_FILES = {
    "cpu": {"cpu.weight": "100"},
    "cpuset": {"cpuset.cpus": ""},
    "memory": {"memory.max": "max"},
}


class FakeCgroupKernel:
    """Implements the functions of `cgroup_files` in memory."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {}
        self._controllers: dict[str, tuple[str, ...]] = {}
        """Controllers of version 1 by mount."""
        self._v2_mount = ""
        self.place: dict[tuple[str, int], str] = {}
        """Group of each process by mount and pid."""
        self.locked: set[str] = set()
        """Groups that another user owns; writes raise `PermissionError`."""
        self.on_move: Callable[[int, str], None] = lambda pid, group: None

    # Setup by tests.

    def mount_legacy(self, mount: str, *controllers: str, **values: str) -> None:
        self._controllers[mount] = controllers
        self.files[mount] = self._legacy_files(mount) | {
            name.replace("_", "."): value for name, value in values.items()
        }

    def mount_unified(self, mount: str, *controllers: str) -> None:
        self._v2_mount = mount
        self.files[mount] = {
            "cgroup.procs": "",
            "cgroup.controllers": " ".join(controllers),
            "cgroup.subtree_control": "",
            "cpu.stat": "usage_usec 0",
        }

    def run(self, pid: int, *groups: str) -> None:
        """Add a process to these groups, and to the root group of every other hierarchy."""
        for mount in self._mounts():
            self.place[mount, pid] = mount
        for group in groups:
            self.place[self._mount_of(group), pid] = group

    def fork(self, parent: int, child: int) -> None:
        for mount in self._mounts():
            self.place[mount, child] = self.place[mount, parent]

    def groups_of(self, pid: int) -> set[str]:
        return {self.place[mount, pid] for mount in self._mounts()}

    # The functions of `cgroup_files`.

    def write(self, group: str, name: str, value: str) -> None:
        if group in self.locked:
            raise PermissionError(errno.EACCES, "Permission denied", group)
        if name not in self._all_files(group):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{group}/{name}")
        if name == "cgroup.procs":
            self._enter(group, int(value))
        elif name == "cgroup.subtree_control":
            self._hand_down(group, value)
        else:
            self.files[group][name] = value

    def read(self, group: str, name: str) -> str:
        if name == "cgroup.procs":
            return "".join(f"{pid}\n" for pid in self.members(group))
        return self._all_files(group).get(name, "")

    def has(self, group: str, name: str) -> bool:
        return name in self._all_files(group)

    def is_writable(self, group: str, name: str) -> bool:
        return group not in self.locked and self.has(group, name)

    def make(self, group: str) -> None:
        above = os.path.dirname(group)
        if above not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", group)
        if above in self.locked:
            raise PermissionError(errno.EACCES, "Permission denied", group)
        if group not in self.files:
            self.files[group] = self._new_files(group)

    def members(self, group: str) -> list[int]:
        return sorted(pid for (_, pid), place in self.place.items() if place == group)

    def subgroups(self, group: str) -> list[str]:
        return sorted(each for each in self.files if os.path.dirname(each) == group)

    def remove(self, group: str) -> bool:
        for below in self.subgroups(group):
            self.remove(below)
        if self.members(group) or self.subgroups(group):
            return False
        self.files.pop(group, None)
        return True

    # Rules of the kernel.

    def _enter(self, group: str, pid: int) -> None:
        mount = self._mount_of(group)
        if (mount, pid) not in self.place:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if mount == self._v2_mount:
            if group != mount and self.files[group]["cgroup.subtree_control"]:
                raise OSError(errno.EBUSY, "Device or resource busy", group)
        elif "cpuset" in self._controllers[mount] and not all(
            self.files[group][name] for name in ("cpuset.cpus", "cpuset.mems")
        ):
            raise OSError(errno.ENOSPC, "No space left on device", group)
        self.place[mount, pid] = group
        self.on_move(pid, group)

    def _hand_down(self, group: str, value: str) -> None:
        wanted = [word[1:] for word in value.split()]
        if any(name not in self._available_controllers(group) for name in wanted):
            raise OSError(errno.ENOENT, "No such file or directory", group)
        if group != self._v2_mount and self.members(group):
            raise OSError(errno.EBUSY, "Device or resource busy", group)
        given = self.files[group]["cgroup.subtree_control"].split()
        self.files[group]["cgroup.subtree_control"] = " ".join(dict.fromkeys([*given, *wanted]))
        for below in self.subgroups(group):
            for name in wanted:
                self.files[below] = UNIFIED_FILES.get(name, {}) | self.files[below]

    def _available_controllers(self, group: str) -> list[str]:
        if group == self._v2_mount:
            return self.files[group]["cgroup.controllers"].split()
        return self.files[os.path.dirname(group)]["cgroup.subtree_control"].split()

    def _all_files(self, group: str) -> dict[str, str]:
        files = self.files.get(group, {})
        if group in self.files and self._v2_mount and group.startswith(self._v2_mount):
            return {**files, "cgroup.controllers": " ".join(self._available_controllers(group))}
        return files

    def _new_files(self, group: str) -> dict[str, str]:
        mount = self._mount_of(group)
        if mount != self._v2_mount:
            return self._legacy_files(mount)
        files = {"cgroup.procs": "", "cgroup.type": "domain", "cgroup.subtree_control": "", "cgroup.kill": ""}
        files["cpu.stat"] = "usage_usec 0"
        for name in self.files[os.path.dirname(group)]["cgroup.subtree_control"].split():
            files.update(UNIFIED_FILES.get(name, {}))
        return files

    def _legacy_files(self, mount: str) -> dict[str, str]:
        files = {"cgroup.procs": ""}
        for name in self._controllers[mount]:
            files.update(LEGACY_FILES[name])
        return files

    def _mounts(self) -> list[str]:
        return [*self._controllers, *([self._v2_mount] if self._v2_mount else [])]

    def _mount_of(self, group: str) -> str:
        return next(mount for mount in self._mounts() if group == mount or group.startswith(mount + "/"))
