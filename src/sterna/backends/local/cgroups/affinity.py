"""Nodes without control groups: cores by affinity, CPU shares by autogroup. Requested rather than enforced.

The kernel groups processes by session where it has autogroups, and a session can be made nicer than another (a plain
nice value counts only within a session). A job's group is an ordinary folder with a list of the sessions that entered
it, so that the same calls work. Memory is not limited, and without privileges a lowered CPU share cannot be raised.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence

from sterna.backends.local.kernel import cgroup_files as files
from sterna.backends.local.kernel.proc_table import Process, descendants, process, processes

_STEP = 1.25
"""Ratio of the kernel's weights between adjacent nice values."""
_NICEST = 19


class AffinityControl:
    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, mode=0o700, exist_ok=True)
        self._cpus: dict[str, tuple[int, ...]] = {}

    @property
    def words(self) -> str:
        if has_autogroups():
            return "affinity and autogroup: cores are asked for, shares are too, memory is not limited"
        return "affinity: cores are asked for, shares and memory are not limited"

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None:
        os.makedirs(os.path.join(self._root, name), exist_ok=True)
        self._cpus[name] = tuple(cpus)

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """Create a folder with a list into which processes write themselves, as into a real group's."""
        group = os.path.join(self._root, node, job)
        os.makedirs(group, exist_ok=True)
        os.close(os.open(os.path.join(group, files.PROCS), os.O_WRONLY | os.O_CREAT, 0o600))
        return (group,)

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        nice = min(max(round(-math.log(max(weight, 1e-6), _STEP)), -_NICEST - 1), _NICEST)
        for leader in self._leaders(node, job):
            try:
                files.write(f"/proc/{leader.pid}", "autogroup", str(nice))
            except PermissionError:
                continue  # raising needs a privilege; `words` reports that shares are only requested
            except FileNotFoundError:
                continue  # no autogroups, or it has just exited

    def move(self, job: str, source: str, target: str) -> None:
        (group,) = self.make_job(target, job)
        leaders = self._leaders(source, job)
        sessions = {leader.pid for leader in leaders}
        table = processes()
        inside = [each for each in table if each.session in sessions]
        for each in [*inside, *descendants(table, {each.pid for each in inside})]:
            _pin(each.pid, self._cpus.get(target, ()))
        for leader in leaders:
            _append(group, leader.pid)
        files_left = os.path.join(self._root, source, job, files.PROCS)
        os.truncate(files_left, 0)

    def remove(self, node: str, job: str) -> None:
        """Remove the job on all nodes: it may have moved."""
        for below in files.subgroups(self._root):
            try:
                os.unlink(os.path.join(below, job, files.PROCS))
                os.rmdir(os.path.join(below, job))
            except OSError:
                continue  # it never was on that node

    def remove_node(self, name: str) -> None:
        for group in files.subgroups(os.path.join(self._root, name)):
            self.remove(name, os.path.basename(group))
        files.remove(os.path.join(self._root, name))

    def cpu_seconds(self, job: str) -> float | None:
        """Return None: groups are not accounted here; `Launcher.cpu_seconds` adds up processes."""
        return None

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        """Remove folders without a running process in their list."""
        for node in map(os.path.basename, files.subgroups(self._root)):
            for job in map(os.path.basename, files.subgroups(os.path.join(self._root, node))):
                if job not in jobs and not self._leaders(node, job):
                    self.remove(node, job)
            if node not in nodes:
                files.remove(os.path.join(self._root, node))

    def close(self) -> None:
        for node in files.subgroups(self._root):
            self.remove_node(os.path.basename(node))
        files.remove(self._root)

    def _leaders(self, node: str, job: str) -> list[Process]:
        """Return the listed processes that still run; a session's leader keeps its pid while it lives."""
        group = os.path.join(self._root, node, job)
        found = (process(pid) for pid in files.members(group))
        return [each for each in found if each is not None and each.session == each.pid and not each.is_gone]


def has_autogroups() -> bool:
    return files.read("/proc/sys/kernel", "sched_autogroup_enabled").strip() == "1"


def _pin(pid: int, cpus: Sequence[int]) -> None:
    """Set the affinity of every thread: affinity belongs to threads."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            os.sched_setaffinity(int(thread), cpus)
        except (ProcessLookupError, PermissionError):
            continue  # it has exited, or changed its user


def _append(group: str, pid: int) -> None:
    descriptor = os.open(os.path.join(group, files.PROCS), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{pid}\n".encode())
    finally:
        os.close(descriptor)
