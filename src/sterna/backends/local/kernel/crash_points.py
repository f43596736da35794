"""Points at which a test may kill one of our own processes, as a power failure or `kill -9` would.

`STERNA_CRASH_AT=NAME` ends the process that reaches the point of that name, without cleaning up. The caller's variable
travels with each request, so that a test chooses per replica. Unset, a point costs one look-up.
"""

from __future__ import annotations

import os

VARIABLE = "STERNA_CRASH_AT"
CRASH_STATUS = 99

POINTS = (
    "launcher.intended",
    "launcher.asked",
    "launcher.voiding",
    "launcher.stopping",
    "zygote.received",
    "zygote.forked",
    "shim.forked",
    "shim.locking",
    "shim.locked",
    "shim.opened",
    "child.forked",
    "child.entered",
    "shim.forked-main",
    "shim.started",
    "shim.recorded",
    "shim.asked",
    "shim.killing",
    "shim.emptied",
    "shim.recording-exit",
    "shim.ended",
)


def crash_point(name: str) -> None:
    if name and os.environ.get(VARIABLE) == name:
        os._exit(CRASH_STATUS)


def arm(name: str) -> None:
    """Set the crash point of a request for this process and those it forks."""
    if name:
        os.environ[VARIABLE] = name
    else:
        os.environ.pop(VARIABLE, None)
