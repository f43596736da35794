"""Programs that are hard to stop.

Each writes the pids of its processes into `$STERNA_DIR/pids`, one per line, and all its processes ignore SIGTERM.
"""

from __future__ import annotations

_OPENING = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
place = os.environ["STERNA_DIR"] + "/pids"
def note():
    out = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, b"%d\\n" % os.getpid())
    os.close(out)
def rest():
    note()
    while True:
        time.sleep(1000)
"""

DEAF = _OPENING + "rest()"

DOUBLE_FORK = (
    _OPENING
    + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        rest()
    os._exit(0)
rest()
"""
)

FORGETFUL = (
    _OPENING
    + """
code = "import time; time.sleep(1000)"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note()
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    os._exit(0)
rest()
"""
)
"""A detached process with its own session and an empty environment."""

NAKED = (
    _OPENING
    + """
if os.fork() == 0:
    note()
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(1000)"], {})
rest()
"""
)
"""A child in the same session with an empty environment."""

WIDE = (
    _OPENING
    + """
for _ in range(40):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            rest()
        rest()
rest()
"""
)

BOMB = (
    _OPENING
    + """
def breed(generations):
    note()
    for _ in range(2):
        if generations and os.fork() == 0:
            breed(generations - 1)
    while True:
        time.sleep(1000)
breed(6)
"""
)
"""A fork bomb of six generations: 127 processes."""

RUNNER = (
    _OPENING
    + """
note()
if os.fork() == 0:
    for _ in range(4000):
        if os.fork() > 0:
            os._exit(0)
        os.setsid()
        time.sleep(0.002)
    os._exit(0)
while True:
    time.sleep(1000)
"""
)
"""Forks and exits repeatedly, so that a list of processes is always stale."""

TREES = {
    "deaf": DEAF,
    "double fork": DOUBLE_FORK,
    "forgetful": FORGETFUL,
    "naked": NAKED,
    "wide": WIDE,
    "bomb": BOMB,
    "runner": RUNNER,
}
COUNTS = {"deaf": 1, "double fork": 2, "forgetful": 2, "naked": 2, "wide": 81, "bomb": 127, "runner": 1}
"""Number of pids that each program writes."""
