"""Choose how jobs are held to their part of a node: the best control that this machine allows, once per daemon.

Version 1 groups as root, version 2 where a subtree is delegated to us, else affinity and autogroups. A node is a group
of constant weight with a CPU set; its jobs are groups below it. The choice is kept in the state folder, so that a
daemon started from another login finds the groups of its predecessor. Replicas enter their groups themselves, in the
shim.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from sterna.backends.local.cgroups.affinity import AffinityControl
from sterna.backends.local.cgroups.probe import CgroupMounts, find_mounts
from sterna.backends.local.cgroups.tree import Tree
from sterna.backends.local.cgroups.v1 import LegacyControl
from sterna.backends.local.cgroups.v2 import UnifiedControl
from sterna.backends.local.kernel import cgroup_files
from sterna.backends.local.kernel.proc_table import boot_id
from sterna.backends.local.kernel.record_files import read_record, write_record

_MEMORY = "control.json"
_SUPERVISOR = "supervisor"


class Control(Protocol):
    """Control of nodes and jobs. Names are those of folders, checked by the caller. Refusals are OSErrors."""

    @property
    def words(self) -> str:
        """Describe for users what is enforced."""
        ...

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None: ...

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """Create the job's groups; return those that its processes enter."""
        ...

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        """Set a weight among the jobs on the node, 1 for an equal share; processes outside the node are not
        affected."""
        ...

    def move(self, job: str, source: str, target: str) -> None:
        """Move a running job to another node."""
        ...

    def remove(self, node: str, job: str) -> None: ...

    def remove_node(self, name: str) -> None: ...

    def cpu_seconds(self, job: str) -> float | None:
        """Return its CPU time on all its nodes; None without accounting."""
        ...

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        """Remove empty groups of a predecessor, except those of these jobs and nodes."""
        ...

    def close(self) -> None:
        """Remove empty groups."""
        ...


def find_control(state: Path, found: CgroupMounts | None = None, tree: Tree = cgroup_files) -> Control:
    """Return the best available control; with the groups of an earlier daemon on this state folder, if they still
    exist."""
    state = state.resolve()
    name = "sterna-" + hashlib.sha256(str(state).encode()).hexdigest()[:12]
    mounts = _read_choice(state, tree) or _own_groups(found or find_mounts(), name, tree)
    for make in (_find_v1, _find_v2):
        try:
            control = make(mounts, tree)
        except OSError:
            continue  # not usable: try the next best
        if control is not None:
            _write_choice(state, mounts)
            return control
    return AffinityControl(str(state / "groups"))


def _find_v1(mounts: CgroupMounts, tree: Tree) -> Control | None:
    if "cpu" not in mounts.legacy:
        return None
    return LegacyControl(tree, mounts.legacy, _can_kill(mounts.unified, tree))


def _find_v2(mounts: CgroupMounts, tree: Tree) -> Control | None:
    return UnifiedControl(tree, mounts.unified) if mounts.unified and "cpu" not in mounts.legacy else None


def _own_groups(found: CgroupMounts, name: str, tree: Tree) -> CgroupMounts:
    """Return our top groups, named by the state folder, so that two clusters on a machine do not collide."""
    legacy = {controller: os.path.join(folder, name) for controller, folder in found.legacy.items()}
    unified = found.unified
    if unified is not None and "cpu" not in legacy:
        unified = _find_delegated_group(unified, found.unified_top, tree)
    return CgroupMounts(legacy, os.path.join(unified, name) if unified else None, found.unified_top)


def _find_delegated_group(own: str, top: str, tree: Tree) -> str | None:
    """Return the nearest group upwards that we may divide: writable, with the CPU controller, and without processes
    inside, because a group with processes cannot have controlled children. If we are its only process, move ourselves
    into a child. The root group is exempt."""
    group = own
    while group.startswith(top):
        is_ours = tree.is_writable(group, "cgroup.subtree_control")
        if is_ours and "cpu" in tree.read(group, "cgroup.controllers").split():
            inside = tree.members(group)
            if not inside or not tree.has(group, "cgroup.type"):
                return group
            if inside == [os.getpid()]:
                supervisor = os.path.join(group, _SUPERVISOR)
                tree.make(supervisor)
                tree.write(supervisor, "cgroup.procs", str(os.getpid()))
                return group
        if group == top:
            return None
        group = os.path.dirname(group)
    return None


def _can_kill(unified: str | None, tree: Tree) -> str | None:
    """Return the version 2 group beside version 1, if it can kill whole groups; it has no controllers then."""
    if unified is None:
        return None
    try:
        tree.make(unified)
    except OSError:
        return None
    return unified if tree.has(unified, "cgroup.kill") else None


def _write_choice(state: Path, mounts: CgroupMounts) -> None:
    record = {"boot_id": boot_id(), "legacy": mounts.legacy, "unified": mounts.unified, "top": mounts.unified_top}
    write_record(str(state), _MEMORY, dict(record), durable=False)


def _read_choice(state: Path, tree: Tree) -> CgroupMounts | None:
    record = read_record(str(state), _MEMORY)
    if record is None or record.get("boot_id") != boot_id():
        return None
    legacy, unified = record.get("legacy"), record.get("unified")
    if not isinstance(legacy, dict):
        return None
    top = legacy.get("cpu") or unified
    if not isinstance(top, str) or not tree.has(top, "cgroup.procs"):
        return None
    return CgroupMounts(legacy, unified if isinstance(unified, str) else None, str(record.get("top", "")))
