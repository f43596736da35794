"""Interface to control group files (real or fake), and operations common to both versions."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

MOST_ROUNDS = 1000
"""Upper bound on rounds of moving members: each round leaves only those forked during it."""
CANNOT_EMPTY = "job '{job}' forks faster than it can be moved away from node '{node}'"


class Tree(Protocol):
    """The functions of `cgroup_files`; groups are folders, errors are OSErrors."""

    def write(self, group: str, name: str, value: str) -> None: ...

    def read(self, group: str, name: str) -> str: ...

    def has(self, group: str, name: str) -> bool: ...

    def is_writable(self, group: str, name: str) -> bool: ...

    def make(self, group: str) -> None: ...

    def members(self, group: str) -> list[int]: ...

    def subgroups(self, group: str) -> list[str]: ...

    def remove(self, group: str) -> bool: ...


def move_member(tree: Tree, group: str, pid: int) -> None:
    """Move one process; one that has just exited counts as moved."""
    try:
        tree.write(group, "cgroup.procs", str(pid))
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


def sweep(tree: Tree, roots: Iterable[str], jobs: Collection[str], nodes: Collection[str]) -> None:
    """Remove empty groups below these roots, except those of these jobs and nodes, which a process may be about to
    enter."""
    for root in roots:
        for node in tree.subgroups(root):
            kept = [
                group for group in tree.subgroups(node) if os.path.basename(group) in jobs or not tree.remove(group)
            ]
            if not kept and os.path.basename(node) not in nodes:
                tree.remove(node)


def core_list(cpus: Sequence[int]) -> str:
    return ",".join(map(str, sorted(cpus)))
