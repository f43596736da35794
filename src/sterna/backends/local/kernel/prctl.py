"""What Linux offers and Python does not: the process attributes by which a tree cannot be lost.

A sub-reaper inherits orphans below it. A death signal ends a child with its parent. The out-of-memory killer is told
whom to spare. Each is a request: where the kernel refuses, killing falls back on groups and sessions.
"""

from __future__ import annotations

import ctypes
import os

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_OOM_FILE = "/proc/self/oom_score_adj"

SPARED = -500
"""Shims and the zygote are small and everything hangs on them; half-way, so that nothing is beyond reach."""

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> bool:
    return bool(_libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent(signal_number: int) -> bool:
    """Forgotten when the user changes, so it comes last; whoever calls it then looks whether its parent still lives."""
    return bool(_libc.prctl(_SET_DEATH_SIGNAL, signal_number, 0, 0, 0) == 0)


def oom_score() -> int:
    try:
        with open(_OOM_FILE, encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 0


def set_oom_score(score: int) -> bool:
    """Lowering it needs a privilege; false without."""
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
