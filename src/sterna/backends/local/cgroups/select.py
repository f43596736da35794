"""How jobs are held to their part of a node: the best control that this machine allows, found once when a daemon
starts.

Version 1 groups as root, version 2 where a part of the tree was handed to us, else affinity and autogroups. A node is
a group of constant weight with a CPU set; its jobs are groups below it. Which groups were chosen is kept in the state
folder: a daemon that is started from another login finds the groups of its predecessor. Replicas enter their groups
by themselves (the shim).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from sterna.backends.local.cgroups.affinity import AffinityControl
from sterna.backends.local.cgroups.probe import CgroupMounts, survey
from sterna.backends.local.cgroups.tree import Tree
from sterna.backends.local.cgroups.v1 import LegacyControl
from sterna.backends.local.cgroups.v2 import UnifiedControl
from sterna.backends.local.kernel import cgroup_files
from sterna.backends.local.kernel.proc_table import boot_id
from sterna.backends.local.kernel.record_files import read_record, write_record

_MEMORY = "control.json"
_SUPERVISOR = "supervisor"


class Control(Protocol):
    """Names of nodes and jobs are those of folders: whoever calls has checked them. Refusals are OSErrors."""

    @property
    def words(self) -> str:
        """What is in force, for people."""
        ...

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None: ...

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """Groups for an intent."""
        ...

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        """1 is an equal share among those on the node; it costs nobody outside the node anything."""
        ...

    def move(self, job: str, source: str, target: str) -> None:
        """While it runs."""
        ...

    def remove(self, node: str, job: str) -> None: ...

    def remove_node(self, name: str) -> None: ...

    def cpu_seconds(self, job: str) -> float | None:
        """Used so far, on all nodes it was on; None where nobody counts."""
        ...

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        """Remove what a predecessor left that holds nobody, but for groups of these jobs and of these nodes."""
        ...

    def close(self) -> None:
        """Remove groups that hold nobody."""
        ...


def find_control(state: Path, found: CgroupMounts | None = None, tree: Tree = cgroup_files) -> Control:
    """The best there is; with the groups of an earlier daemon on the same state folder, if they are still there."""
    state = state.resolve()
    name = "sterna-" + hashlib.sha256(str(state).encode()).hexdigest()[:12]
    around = _remembered(state, tree) or _chosen(found or survey(), name, tree)
    for make in (_legacy, _unified):
        try:
            control = make(around, tree)
        except OSError:
            continue  # not ours to use: the next best
        if control is not None:
            _remember(state, around)
            return control
    return AffinityControl(str(state / "groups"))


def _legacy(around: CgroupMounts, tree: Tree) -> Control | None:
    if "cpu" not in around.legacy:
        return None
    return LegacyControl(tree, around.legacy, _can_kill(around.unified, tree))


def _unified(around: CgroupMounts, tree: Tree) -> Control | None:
    return UnifiedControl(tree, around.unified) if around.unified and "cpu" not in around.legacy else None


def _chosen(found: CgroupMounts, name: str, tree: Tree) -> CgroupMounts:
    """Our top groups, named for the state folder, so that two clusters on a machine do not meet."""
    legacy = {controller: os.path.join(folder, name) for controller, folder in found.legacy.items()}
    unified = found.unified
    if unified is not None and "cpu" not in legacy:
        unified = _delegated(unified, found.unified_top, tree)
    return CgroupMounts(legacy, os.path.join(unified, name) if unified else None, found.unified_top)


def _delegated(own: str, top: str, tree: Tree) -> str | None:
    """The nearest group from ours upwards that we may divide: writable, offering CPU, and with no process inside, for
    one with processes cannot have divided children. If we are its only process we go into a child. The topmost is
    exempt."""
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
    """Version 2 beside version 1 has no controllers to offer, but can end a whole group at once."""
    if unified is None:
        return None
    try:
        tree.make(unified)
    except OSError:
        return None
    return unified if tree.has(unified, "cgroup.kill") else None


def _remember(state: Path, around: CgroupMounts) -> None:
    record = {"boot_id": boot_id(), "legacy": around.legacy, "unified": around.unified, "top": around.unified_top}
    write_record(str(state), _MEMORY, dict(record), durable=False)


def _remembered(state: Path, tree: Tree) -> CgroupMounts | None:
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
