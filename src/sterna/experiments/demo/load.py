"""CPU time of other processes during the demo, which would distort its results.

Read from /proc/stat, for the cores that the demo uses. Steal time counts as other processes. If /proc cannot be read,
the result is NaN, not 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields user, nice, system, irq, softirq, steal; not idle, iowait, and guest, which user includes."""


@dataclass(frozen=True)
class LoadReading:
    """CPU counters at one instant."""

    at: float
    busy_seconds: float
    """CPU time of all processes on the watched cores; NaN if unknown."""
    own_seconds: float
    """CPU time of this process and the children it has waited for."""


class LoadMeter:
    """Measures the load of other processes on some cores."""

    def __init__(self, cores: Collection[int], allowed: int, stat: Path = _STAT) -> None:
        self._cores, self._stat = frozenset(cores), stat
        self.count = len(self._cores)
        self._part = len(self._cores) / max(allowed, 1)
        """Expected fraction of our own CPU time on these cores."""

    def read(self) -> LoadReading:
        used = os.times()
        own = used.user + used.system + used.children_user + used.children_system
        return LoadReading(time.monotonic(), self._busy_seconds(), own)

    def _busy_seconds(self) -> float:
        try:
            lines = self._stat.read_text(encoding="ascii").splitlines()
        except OSError:
            return float("nan")
        ticks, seen = 0, set()
        for line in lines:
            name, *counts = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cores:
                seen.add(int(name[3:]))
                ticks += sum(int(counts[at]) for at in _BUSY if at < len(counts))
        return ticks / _TICKS_PER_SECOND if seen == self._cores else float("nan")

    def others(self, since: LoadReading, until: LoadReading, job_seconds: float) -> float:
        """Return the fraction of the watched cores that neither the jobs nor this process used; NaN if unknown."""
        span = (until.at - since.at) * len(self._cores)
        if span <= 0:
            return float("nan")
        own = (until.own_seconds - since.own_seconds) * self._part
        left = until.busy_seconds - since.busy_seconds - job_seconds - own
        return left if left != left else min(max(left / span, 0.0), 1.0)
