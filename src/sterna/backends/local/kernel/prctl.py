"""Process attributes of Linux that Python does not offer, by which a process tree stays under control.

A sub-reaper inherits orphans below it. A death signal ends a child with its parent. An OOM score protects from the
out-of-memory killer. Where the kernel refuses, killing falls back on control groups and sessions.
"""

from __future__ import annotations

import ctypes
import os

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_OOM_FILE = "/proc/self/oom_score_adj"

SPARED = -500
"""OOM score of shims and the zygote: they are small and every replica depends on them."""

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> bool:
    return bool(_libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent(signal_number: int) -> bool:
    """Ask for a signal when the parent dies. Reset by a change of user, so it comes last; the caller then checks that
    its parent still lives."""
    return bool(_libc.prctl(_SET_DEATH_SIGNAL, signal_number, 0, 0, 0) == 0)


def oom_score() -> int:
    try:
        with open(_OOM_FILE, encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 0


def set_oom_score(score: int) -> bool:
    """Set the OOM score; lowering it needs a privilege. Return False without it."""
    try:
        descriptor = os.open(_OOM_FILE, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(descriptor, str(score).encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
