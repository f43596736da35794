"""The process table, read from /proc.

Used by shim, zygote and daemon, so it imports nothing heavy. A process is identified by boot, pid and start time,
because pids are reused; a zombie still has all three, so its state counts too. No signals are sent here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Process:
    """One entry of the process table at one instant."""

    __slots__ = ("cpu_seconds", "parent", "pid", "session", "state", "ticks", "waited_cpu_seconds")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The command is in brackets and may contain brackets and blanks: only the last bracket counts.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.cpu_seconds = (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
        self.waited_cpu_seconds = (int(fields[13]) + int(fields[14])) / TICKS_PER_SECOND
        """CPU time of children that were waited for."""
        self.ticks = int(fields[19])

    @property
    def is_gone(self) -> bool:
        """True for zombies and dead processes, which keep pid and start time until they are waited for."""
        return self.state in "ZX"


def boot_id() -> str:
    """Return the identifier of this boot; pids and start times of another boot are meaningless."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def process(pid: int) -> Process | None:
    stat = _read(f"/proc/{pid}/stat")
    return Process(pid, stat) if stat else None


def processes() -> list[Process]:
    """Return all visible processes. Some that start or exit meanwhile may be missing: callers repeat until nothing
    changes."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [each for each in found if each is not None]


def is_alive(pid: int, ticks: int, boot: str) -> bool:
    """True if that process, not a later one with its pid, still runs."""
    if boot != boot_id():
        return False
    found = process(pid)
    return found is not None and found.ticks == ticks and not found.is_gone


def children(pid: int) -> list[int]:
    """Return the direct children, from the kernel's list or else from all processes."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        lists = [_read_or_raise(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    except OSError:
        return [each.pid for each in processes() if each.parent == pid]
    return [int(child) for each in lists for child in each.split()]


def descendants(table: list[Process], roots: set[int]) -> Iterator[Process]:
    """Return all processes below the roots."""
    below: dict[int, list[Process]] = {}
    for each in table:
        below.setdefault(each.parent, []).append(each)
    waiting, seen = list(roots), set(roots)
    while waiting:
        for each in below.get(waiting.pop(), ()):
            if each.pid not in seen:
                seen.add(each.pid)
                waiting.append(each.pid)
                yield each


def has_variable(pid: int, variable: bytes) -> bool:
    """True if `NAME=value` is in its initial environment; an exiting process has lost its environment."""
    return variable in _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    try:
        return _read_or_raise(path)
    except OSError:
        return b""  # it has exited, or belongs to another user


def _read_or_raise(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
