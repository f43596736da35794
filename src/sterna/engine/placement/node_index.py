"""Bins: nodes by the devices they have free, for plans that place many jobs at once.

Looking through all nodes for every job is fine for a few jobs; for thousands this index finds the same node, the
tightest that holds a job or else the emptiest, in a few steps.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from sterna.model.cluster import Ints


class Bins:
    """Heaps of node rows by free devices, kept in step with `free` through `note`. Lives for one placement."""

    def __init__(self, free: Ints) -> None:
        self._free = free
        self._changed: set[int] = set()
        order = free.argsort(kind="stable")
        levels, starts = np.unique(free[order], return_index=True)
        parts = np.split(order, starts[1:])
        self._heaps: dict[int, list[int]] = {
            level: nodes.tolist()  # ascending, which is a heap already
            for level, nodes in zip(levels.tolist(), parts, strict=True)
            if level > 0
        }
        self._levels = sorted(self._heaps)

    def note(self, node: int) -> None:
        """A node has less room than before."""
        self._changed.add(node)

    def find(self, wanted: int, avoid: Collection[int]) -> tuple[int, int]:
        """The node that has least above what is wanted, else the one with most, lowest row first; and what it has."""
        if self._changed:
            self._refresh()
        at = bisect_left(self._levels, wanted)
        for level in self._levels[at:] + self._levels[:at][::-1]:
            node = self._top(level, avoid)
            if node >= 0:
                return node, level
        return -1, 0

    def _refresh(self) -> None:
        """Enter changed nodes where they belong now; what is left of them elsewhere is recognised as stale."""
        for node in self._changed:
            level = self._free.item(node)
            if level <= 0:
                continue
            if level not in self._heaps:
                self._heaps[level] = []
                self._levels = sorted(self._heaps)
            heapq.heappush(self._heaps[level], node)
        self._changed.clear()

    def _top(self, level: int, avoid: Collection[int]) -> int:
        heap = self._heaps[level]
        passed = []
        found = -1
        while heap:
            node = heap[0]
            if self._free.item(node) == level:
                if node not in avoid:
                    found = node
                    break
                passed.append(node)
            heapq.heappop(heap)
        for node in passed:
            heapq.heappush(heap, node)
        return found
