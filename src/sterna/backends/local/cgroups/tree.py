"""What control groups are built on: the files of the kernel, or a fake of them, and the few moves that both versions
share."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

MOST_ROUNDS = 1000
"""Of moving members: each round leaves only those born during it."""
CANNOT_EMPTY = "job '{job}' forks faster than it can be moved away from node '{node}'"


class Tree(Protocol):
    """As `cgroup_files` does it; groups are folders, errors are OSErrors."""

    def write(self, group: str, name: str, value: str) -> None: ...

    def read(self, group: str, name: str) -> str: ...

    def has(self, group: str, name: str) -> bool: ...

    def is_writable(self, group: str, name: str) -> bool: ...

    def make(self, group: str) -> None: ...

    def members(self, group: str) -> list[int]: ...

    def subgroups(self, group: str) -> list[str]: ...

    def remove(self, group: str) -> bool: ...


def move_member(tree: Tree, group: str, pid: int) -> None:
    """One that has just ended is as good as moved."""
    try:
        tree.write(group, "cgroup.procs", str(pid))
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


def sweep(tree: Tree, roots: Iterable[str], jobs: Collection[str], nodes: Collection[str]) -> None:
    """Remove groups below these tops that hold nobody, but for those of the jobs and nodes that are named: somebody may
    be about to enter them."""
    for root in roots:
        for node in tree.subgroups(root):
            kept = [
                group for group in tree.subgroups(node) if os.path.basename(group) in jobs or not tree.remove(group)
            ]
            if not kept and os.path.basename(node) not in nodes:
                tree.remove(node)


def core_list(cpus: Sequence[int]) -> str:
    return ",".join(map(str, sorted(cpus)))
