"""What control groups are built on: the files of the kernel, or a fake of them, and the few moves that both versions
share."""

from __future__ import annotations

import errno
from collections.abc import Sequence
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


def core_list(cpus: Sequence[int]) -> str:
    return ",".join(map(str, sorted(cpus)))
