"""A replica's own control group, below its job's: what is inside is the replica's, wherever it forked to, and dies at
once.

A job's group holds all of its replicas on a node, so killing that would take siblings along. The leaf is made by the
shim in the one hierarchy that can end a whole group: cgroup v2 (`cgroup.kill`, or freezing), else v1's freezer. Job
groups are ROOT/NODE/JOB; a job that moves between nodes takes the leaf's name along, so a leaf is looked for under
every node. Light: the shim imports it. Nodes, weights and CPU sets are the daemon's business (`cgroups.py`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from sterna.backends.local.kernel import cgroup_files as files

_KILL, _FREEZE_V2, _FREEZE_V1 = "cgroup.kill", "cgroup.freeze", "freezer.state"


def leaf_name(folder: str) -> str:
    """From the replica's folder, `.../ATTEMPT/TYPE-INDEX`."""
    attempt, replica = folder.rstrip("/").split("/")[-2:]
    return f"replica-{attempt}-{replica}"


def groups_to_enter(groups: Sequence[str], folder: str) -> tuple[str, ...]:
    """The job's groups, with the one that can kill replaced by the replica's leaf in it, which is made."""
    killing = _killing(groups)
    if killing is None:
        return tuple(groups)
    leaf = os.path.join(killing, leaf_name(folder))
    files.make(leaf)
    return tuple(leaf if group == killing else group for group in groups)


def enter(group: str) -> None:
    """Before exec: children forked earlier would stay outside for ever. By number, as one more line, so that it also
    works where a group is only a list (`cgroup_affinity`)."""
    descriptor = os.open(os.path.join(group, files.PROCS), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def pins_cores(groups: Sequence[str]) -> bool:
    """Whether a CPU set holds its members; an affinity of their own would then only be in the way of a move."""
    return any(files.has(each, "cpuset.cpus") for group in groups for each in (group, os.path.dirname(group)))


def leaves(groups: Sequence[str], folder: str) -> tuple[str, ...]:
    """Where the replica's processes may be: in its leaf of any node that its job was on."""
    killing = _killing(groups)
    if killing is None:
        return ()
    root, job = os.path.dirname(os.path.dirname(killing)), os.path.basename(killing)
    candidates = [os.path.join(node, job, leaf_name(folder)) for node in files.subgroups(root)]
    return tuple(leaf for leaf in candidates if files.has(leaf, files.PROCS))


def kill_leaf(leaf: str) -> None:
    """One blow at everything inside. Whoever calls looks whether it is empty, and strikes again if not."""
    if files.has(leaf, _KILL):
        _try_write(leaf, _KILL, "1")
        return
    freezing = (_FREEZE_V1, "FROZEN", "THAWED") if files.has(leaf, _FREEZE_V1) else (_FREEZE_V2, "1", "0")
    name, frozen, thawed = freezing
    _try_write(leaf, name, frozen)  # so that nobody forks while the list is read
    for pid in files.everyone(leaf):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    _try_write(leaf, name, thawed)


def leaf_members(leaves_found: Sequence[str]) -> list[int]:
    return [pid for leaf in leaves_found for pid in files.everyone(leaf)]


def remove_leaves(leaves_found: Sequence[str]) -> None:
    """Best effort: whoever removes the job's group removes what is left of it."""
    for leaf in leaves_found:
        files.remove(leaf)


def leaf_cpu_seconds(leaves_found: Sequence[str]) -> float | None:
    """None where the kernel does not count per group."""
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
        return  # the group is gone, which is what was wanted; if not, whoever calls sees who is left
