"""The lock file of a replica's folder: the first process that links it may start the replica.

A link succeeds or finds the name taken, whatever dies in between, so a shim and a daemon that gave up on it never both
win. A shim's lock names its process; a daemon's is void, and a late shim then exits without starting anything.
"""

from __future__ import annotations

import os

from sterna.backends.local.kernel.atomic_files import make_temporary, read_bytes, remove_file
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.kernel.proc_table import boot_id, is_alive, process
from sterna.backends.local.kernel.record_files import LOCK_FILE

_VOID = "void"


class ReplicaLock:
    """The holder of a replica's folder."""

    __slots__ = ("boot", "pid", "ticks")

    def __init__(self, pid: int, ticks: int, boot: str) -> None:
        self.pid = pid
        """0: the lock is void."""
        self.ticks = ticks
        self.boot = boot

    @property
    def is_void(self) -> bool:
        return self.pid == 0

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == boot_id()

    def holder_lives(self) -> bool:
        return not self.is_void and is_alive(self.pid, self.ticks, self.boot)


def acquire(folder: str) -> bool:
    """Lock the folder for this process; return False if it is locked."""
    me = process(os.getpid())
    ticks = me.ticks if me is not None else 0
    return _link(folder, f"{os.getpid()} {ticks} {boot_id()}", "shim.locking")


def void(folder: str) -> bool:
    """Lock the folder for no process; return False if a shim holds it. Idempotent."""
    if _link(folder, _VOID, "launcher.voiding"):
        return True
    found = read_lock(folder)
    return found is not None and found.is_void


def read_lock(folder: str) -> ReplicaLock | None:
    content = read_bytes(os.path.join(folder, LOCK_FILE))
    if content is None:
        return None
    words = content.decode("ascii", "replace").split()
    if len(words) != 3 or not (words[0].isdigit() and words[1].isdigit()):
        return ReplicaLock(0, 0, "")
    return ReplicaLock(int(words[0]), int(words[1]), words[2])


def _link(folder: str, content: str, crash: str) -> bool:
    temporary = make_temporary(folder, LOCK_FILE, (content + "\n").encode())
    crash_point(crash)
    try:
        os.link(temporary, os.path.join(folder, LOCK_FILE))
    except FileExistsError:
        return False
    finally:
        remove_file(temporary)
    return True
