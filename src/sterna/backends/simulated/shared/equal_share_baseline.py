"""The shadow run: the same jobs under the default scheduler, kept beside the world so that a guard knows what a job
would have had.

Nodes are filled by count unless a map says where each job starts, and shared equally; nothing is moved. It counts
core-seconds only, by what is believed of each job; when a job really ends, what it needed is known. Nothing is worked
out until somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sterna.engine.cpu_sharing.forecast import equal_ends, max_min
from sterna.model.snapshot import NEVER
from sterna.model.speedup import Floats

_DUST = 1e-6


class Shadow:
    """What the default scheduler would have done so far."""

    def __init__(self, cores: Sequence[float], caps: Sequence[float], known: Floats, start: Sequence[int]) -> None:
        self._cores, self._caps, self._start = list(cores), list(caps), start
        self._left = [NEVER if work != work else work for work in known.tolist()]
        self._done = [0.0] * len(self._left)
        self._on: list[list[int]] = [[] for _ in cores]
        self._events: list[tuple[float, int, float]] = []
        """Not yet looked at: when, who, and what it turned out to need (below 0: it arrived)."""
        self._now = 0.0
        self.finish = np.full(len(self._left), np.nan)
        """When each ended; no number while it has not."""

    def arrive(self, key: int, at: float) -> None:
        self._events.append((at, key, -1.0))

    def end(self, key: int, at: float, work: float) -> None:
        """The job has really ended, after so much work."""
        self._events.append((at, key, work))

    def ends_by(self, now: float) -> Floats:
        """When each job ends or has ended, as far as can be told at this instant."""
        for at, key, work in self._events:
            self._advance(at)
            if work < 0:
                self._on[self._node_for(key)].append(key)
            else:
                self._learn(key, work)
        self._events.clear()
        self._advance(now)
        ends = self.finish.copy()
        for node, keys in enumerate(self._on):
            left = [self._left[key] for key in keys]
            if keys and max(left) < NEVER:
                foretold = equal_ends(self._cores[node], [self._caps[key] for key in keys], left)
                ends[keys] = [now + seconds for seconds in foretold]
            elif keys:
                # Somebody's end is unknown: the others are foretold as if it stayed for ever.
                for key, work in zip(keys, left, strict=True):
                    rate = min(self._caps[key], self._cores[node] / len(keys))
                    ends[key] = now + work / rate if work < NEVER else np.nan
        return ends

    def _node_for(self, key: int) -> int:
        if self._start:
            return self._start[key]
        counts = [len(keys) for keys in self._on]
        return counts.index(min(counts))

    def _learn(self, key: int, work: float) -> None:
        if not np.isnan(self.finish[key]):
            return
        self._left[key] = max(work - self._done[key], _DUST)

    def _advance(self, now: float) -> None:
        if now > self._now:
            for node, keys in enumerate(self._on):
                if keys:
                    self._on[node] = self._run(node, keys, now)
            self._now = now

    def _run(self, node: int, keys: list[int], until: float) -> list[int]:
        """Let the jobs of one node share it until then; those that are left."""
        at = self._now
        while keys and at < until:
            rates = max_min(self._cores[node], [1.0] * len(keys), [self._caps[key] for key in keys])
            step = min(min(self._left[key] / rate for key, rate in zip(keys, rates, strict=True)), until - at)
            at += step
            for key, rate in zip(keys, rates, strict=True):
                self._left[key] -= rate * step
                self._done[key] += rate * step
            ended = [key for key in keys if self._left[key] <= _DUST]
            if ended:
                self.finish[ended] = at
                keys = [key for key in keys if self._left[key] > _DUST]
        return keys
