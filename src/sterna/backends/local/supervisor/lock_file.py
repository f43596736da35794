"""Who may start a replica: whoever links the file `claim` first.

A link either succeeds or finds the name taken, whatever dies in between, so that a shim and a daemon that gave up on
it can never both win. A shim's claim names its process; a daemon's is void: a late shim then ends without starting
anything.
"""

from __future__ import annotations

import os

from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.kernel.proc_table import boot_id, is_alive, process
from sterna.backends.local.kernel.record_files import CLAIM, make_temporary, read_bytes, remove

_VOID = "void"


class Claim:
    """Who holds a replica's folder."""

    __slots__ = ("boot", "pid", "ticks")

    def __init__(self, pid: int, ticks: int, boot: str) -> None:
        self.pid = pid
        """0: nobody; the claim is void."""
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


def claim(folder: str) -> bool:
    """Take the folder for this process; false if somebody else has it."""
    me = process(os.getpid())
    ticks = me.ticks if me is not None else 0
    return _link(folder, f"{os.getpid()} {ticks} {boot_id()}", "shim.claiming")


def void(folder: str) -> bool:
    """Take it for nobody; false if a shim has it. Again and again without harm."""
    if _link(folder, _VOID, "launcher.voiding"):
        return True
    found = read_claim(folder)
    return found is not None and found.is_void


def read_claim(folder: str) -> Claim | None:
    content = read_bytes(os.path.join(folder, CLAIM))
    if content is None:
        return None
    words = content.decode("ascii", "replace").split()
    if len(words) != 3 or not (words[0].isdigit() and words[1].isdigit()):
        return Claim(0, 0, "")
    return Claim(int(words[0]), int(words[1]), words[2])


def _link(folder: str, content: str, crash: str) -> bool:
    temporary = make_temporary(folder, CLAIM, (content + "\n").encode())
    crash_point(crash)
    try:
        os.link(temporary, os.path.join(folder, CLAIM))
    except FileExistsError:
        return False
    finally:
        remove(temporary)
    return True
