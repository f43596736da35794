"""Programs that do not want to end, as training jobs sometimes are by accident and seldom on purpose.

Each writes the pids of its processes into `$STERNA_DIR/pids`, one a line, and every process of it ignores SIGTERM.
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
"""Its daemon has a session of its own and an empty environment."""

NAKED = (
    _OPENING
    + """
if os.fork() == 0:
    note()
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(1000)"], {})
rest()
"""
)
"""Its child has no environment, as an exiting process has none, but is in its session."""

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
"""Doubles six times: 127 processes, each parent of two."""

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
"""Forks and ends at once, again and again: nobody who lists processes finds it where it was."""

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
"""How many pids each notes before it rests."""
