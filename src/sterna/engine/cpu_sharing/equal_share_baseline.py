"""Completion times under the default scheduler, for the guard of a CPU share rule.

A fluid simulation beside the real cluster: each job goes to the node with the fewest jobs (or to a given one), jobs of
a node divide its cores equally, and no job is moved. Work is counted in core-seconds, by the current estimate of
each job's total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sterna.engine.cpu_sharing.forecast import equal_ends, max_min

_NO_WORK = 1e-6
"""Core-seconds below which a job has ended; also the remaining work of a job that exceeds its estimate."""


class EqualShareBaseline:
    """Jobs by key, on nodes with this many cores each."""

    def __init__(self, cores: Sequence[float], now: float = 0.0) -> None:
        self._cores = list(cores)
        self._now = now
        self._on: list[list[int]] = [[] for _ in cores]
        """Keys of the jobs that have not ended, by node."""
        self._limit: dict[int, float] = {}
        """Largest number of cores that a job can use."""
        self._done: dict[int, float] = {}
        self._left: dict[int, float] = {}
        """Infinite where the total is unknown."""
        self._finish: dict[int, float] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._limit

    @property
    def keys(self) -> Sequence[int]:
        return list(self._limit)

    def add(self, key: int, core_limit: float, total: float = math.inf, node: int | None = None) -> None:
        """Start a job now, on `node` or else on the node with the fewest jobs."""
        if node is None:
            counts = [len(keys) for keys in self._on]
            node = counts.index(min(counts))
        self._on[node].append(key)
        self._limit[key], self._done[key], self._left[key] = core_limit, 0.0, total

    def set_total(self, key: int, total: float) -> None:
        """Replace the estimate of a job's whole work, in core-seconds; no effect once the job has ended here."""
        if key not in self._finish:
            self._left[key] = max(total - self._done[key], _NO_WORK)

    def remove(self, key: int) -> None:
        """Forget a job."""
        for keys in self._on:
            if key in keys:
                keys.remove(key)
        for column in (self._limit, self._done, self._left, self._finish):
            column.pop(key, None)

    def advance(self, now: float) -> None:
        """Let the jobs run until `now`."""
        if now > self._now:
            for node, keys in enumerate(self._on):
                if keys:
                    self._on[node] = self._run(node, keys, now)
            self._now = now

    def completions(self) -> dict[int, float]:
        """Return when each job ends or has ended, as predicted now; NaN where its total is unknown."""
        now, ends = self._now, self._finish.copy()
        for node, keys in enumerate(self._on):
            left = [self._left[key] for key in keys]
            if keys and max(left) < math.inf:
                seconds = equal_ends(self._cores[node], [self._limit[key] for key in keys], left)
                ends.update((key, now + span) for key, span in zip(keys, seconds, strict=True))
                continue
            # A job of unknown length is assumed never to end, so the others keep their present rates.
            for key, work in zip(keys, left, strict=True):
                rate = min(self._limit[key], self._cores[node] / len(keys))
                ends[key] = now + work / rate if work < math.inf else math.nan
        return ends

    def _run(self, node: int, keys: list[int], until: float) -> list[int]:
        """Divide the cores of a node among its jobs until `until`; return the jobs that have not ended."""
        at = self._now
        while keys and at < until:
            rates = max_min(self._cores[node], [1.0] * len(keys), [self._limit[key] for key in keys])
            step = min(min(self._left[key] / rate for key, rate in zip(keys, rates, strict=True)), until - at)
            at += step
            for key, rate in zip(keys, rates, strict=True):
                self._left[key] -= rate * step
                self._done[key] += rate * step
            ended = [key for key in keys if self._left[key] <= _NO_WORK]
            if ended:
                self._finish.update((key, at) for key in ended)
                keys = [key for key in keys if self._left[key] > _NO_WORK]
        return keys
