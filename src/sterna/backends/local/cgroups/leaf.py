"""A replica's own control group, below its job's: it contains all processes of the replica and can be killed at once.

A job's group holds all of its replicas on a node, so killing that would kill siblings. The shim creates the leaf in the
one hierarchy that can kill a whole group: cgroup v2 (`cgroup.kill`, or freezing), else v1's freezer. Job groups are
ROOT/NODE/JOB; a job that moves between nodes keeps the leaf's name, so a leaf is searched under every node. Light,
because the shim imports it. Nodes, weights and CPU sets are set by the daemon (`select.py`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from sterna.backends.local.kernel import cgroup_files as files

_KILL, _FREEZE_V2, _FREEZE_V1 = "cgroup.kill", "cgroup.freeze", "freezer.state"


def leaf_name(folder: str) -> str:
    """Return the name of the leaf for a replica's folder, `.../ATTEMPT/TYPE-INDEX`."""
    attempt, replica = folder.rstrip("/").split("/")[-2:]
    return f"replica-{attempt}-{replica}"


def groups_to_enter(groups: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the job's groups, with the killable one replaced by the replica's leaf, which is created."""
    killing = _killing(groups)
    if killing is None:
        return tuple(groups)
    leaf = os.path.join(killing, leaf_name(folder))
    files.make(leaf)
    return tuple(leaf if group == killing else group for group in groups)


def enter(group: str) -> None:
    """Enter a group before exec: children forked earlier would stay outside. Appends the pid, so that it also works
    where a group is only a list (`affinity.py`)."""
    descriptor = os.open(os.path.join(group, files.PROCS), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def pins_cores(groups: Sequence[str]) -> bool:
    """True if a CPU set binds its members; an affinity of their own would then prevent moves."""
    return any(files.has(each, "cpuset.cpus") for group in groups for each in (group, os.path.dirname(group)))


def leaves(groups: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the leaves that may hold the replica's processes, on all nodes of its job."""
    killing = _killing(groups)
    if killing is None:
        return ()
    root, job = os.path.dirname(os.path.dirname(killing)), os.path.basename(killing)
    candidates = [os.path.join(node, job, leaf_name(folder)) for node in files.subgroups(root)]
    return tuple(leaf for leaf in candidates if files.has(leaf, files.PROCS))


def kill_leaf(leaf: str) -> None:
    """Kill everything inside once. The caller checks that it is empty, and repeats if not."""
    if files.has(leaf, _KILL):
        _try_write(leaf, _KILL, "1")
        return
    freezing = (_FREEZE_V1, "FROZEN", "THAWED") if files.has(leaf, _FREEZE_V1) else (_FREEZE_V2, "1", "0")
    name, frozen, thawed = freezing
    _try_write(leaf, name, frozen)  # no process can fork while the list is read
    for pid in files.all_members(leaf):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    _try_write(leaf, name, thawed)


def leaf_members(leaves_found: Sequence[str]) -> list[int]:
    return [pid for leaf in leaves_found for pid in files.all_members(leaf)]


def remove_leaves(leaves_found: Sequence[str]) -> None:
    """Remove empty leaves, best effort: the rest goes with the job's group."""
    for leaf in leaves_found:
        files.remove(leaf)


def leaf_cpu_seconds(leaves_found: Sequence[str]) -> float | None:
    """Return their CPU time; None where the kernel does not account groups."""
    total, counted = 0.0, False
    for leaf in leaves_found:
        for line in files.read(leaf, "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                total, counted = total + int(value) / 1e6, True
    return total if counted else None


def _killing(groups: Sequence[str]) -> str | None:
    for name in (_KILL, _FREEZE_V2, _FREEZE_V1):
        for group in groups:
            if files.has(group, name):
                return group
    return None


def _try_write(group: str, name: str, value: str) -> None:
    try:
        files.write(group, name, value)
    except OSError:
        return  # the group is gone, as intended; otherwise the caller sees the remaining processes
