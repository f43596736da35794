"""Kill a whole process tree, despite double forks, new sessions, ignored signals and fork bombs.

`end_children` works from above: a sub-reaper keeps every descendant below it, and is done when the kernel reports no
child. `end_replica` works from outside, after the shim has died: members are found by control group, session, and the
folder in their environment. SIGKILL only; the stop request came before.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from sterna.backends.local.cgroups.leaf import kill_leaf, leaf_members, leaves, remove_leaves
from sterna.backends.local.kernel.proc_table import (
    Process,
    boot_id,
    children,
    descendants,
    has_variable,
    process,
    processes,
)
from sterna.backends.local.kernel.record_files import SHIM, read_record

FOLDER_VARIABLE = "STERNA_DIR"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 1.0
_QUICK_ROUNDS = 50


def end_children(folder: str, groups: Sequence[str], reaped: Callable[[int, int], None]) -> None:
    """Kill and reap until no descendant is left. Only for a sub-reaper; waits for processes stuck in the kernel."""
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        kill_leaves(folder, groups)
        _kill_fast_breeders(reaped)
        for each in descendants(processes(), {os.getpid()}):
            kill(each.pid)
        if not reap(reaped):
            return
        signal.sigtimedwait({signal.SIGCHLD}, pause_seconds)
        if not reap(reaped):
            return
        pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)


def reap(reaped: Callable[[int, int], None]) -> bool:
    """Reap all exited children; return False if no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        reaped(pid, status)


def end_replica(folder: str, groups: Sequence[str], within_seconds: float = 10.0) -> bool:
    """Kill what a dead shim left behind; return False if some of it still lives after the timeout."""
    deadline = time.monotonic() + within_seconds
    sessions = _sessions_of(folder)
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        found = kill_leaves(folder, groups)
        left = _survivors(folder, sessions, leaf_members(found))
        for each in left:
            kill(each.pid)
        if not left:
            remove_leaves(found)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, 0.1)


def survivors(folder: str, groups: Sequence[str]) -> list[Process]:
    """Return the running processes of a replica, without the shim."""
    return _survivors(folder, _sessions_of(folder), leaf_members(leaves(groups, folder)))


def kill_leaves(folder: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Kill the replica's control groups once each; return them."""
    found = leaves(groups, folder)
    for leaf in found:
        kill_leaf(leaf)
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # gone, or running as another user: only its group can reach it then


def _kill_fast_breeders(reaped: Callable[[int, int], None]) -> None:
    """Kill direct children for some rounds. A process that forks and exits at once is gone before all processes are
    listed, but its child becomes ours; listing direct children takes microseconds."""
    for _ in range(_QUICK_ROUNDS):
        mine = children(os.getpid())
        if not mine:
            return
        for pid in mine:
            kill(pid)
        if not reap(reaped):
            return


def _survivors(folder: str, sessions: set[int], members: Sequence[int]) -> list[Process]:
    table = [each for each in processes() if not each.is_gone and each.pid != os.getpid()]
    variable = f"{FOLDER_VARIABLE}={folder}".encode()
    known = {each.pid for each in table if has_variable(each.pid, variable)}
    # An exiting process has lost its environment but still holds its files; its session stays until the end.
    living = {each.pid for each in table}
    found = {each.session for each in table if each.pid in known}
    # A user may have copied the variable into a shell: a living session leader must be one of ours.
    sessions |= {session for session in found if session in known or session not in living}
    known |= {each.pid for each in table if each.session in sessions} | set(members)
    known |= {each.pid for each in descendants(table, known)}
    return [each for each in table if each.pid in known]


def _sessions_of(folder: str) -> set[int]:
    """Return the session in the shim's record, unless its number was reused: after a reboot, or if its leader is
    younger. A number is not reused while its session has members."""
    record = read_record(folder, SHIM) or {}
    session, ticks = record.get("session"), record.get("ticks")
    if not isinstance(session, int) or session <= 0 or record.get("boot_id") != boot_id():
        return set()
    leader = process(session)
    return {session} if leader is None or leader.ticks == ticks else set()
