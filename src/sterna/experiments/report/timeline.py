"""Devices in use and waiting jobs over time, reduced to as many points as a figure can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.model.speedup import Floats

MOST_POINTS = 2_000


@dataclass(frozen=True)
class Timeline:
    """Step functions: a value holds from its time to the next."""

    times: Floats
    """Seconds since the first submission."""
    devices_used: Floats
    jobs_waiting: Floats


def timeline_of(times: Sequence[float], devices_used: Sequence[float], jobs_waiting: Sequence[int]) -> Timeline:
    """Keep every change if there are few; else take time-weighted means over equal spans, which preserve areas."""
    clock = np.array(times, dtype=np.float64)
    if not len(clock):
        return Timeline(clock, clock, clock)
    clock = clock - clock[0]
    used, waiting = np.array(devices_used, dtype=np.float64), np.array(jobs_waiting, dtype=np.float64)
    if len(clock) <= MOST_POINTS or clock[-1] <= 0:
        last = np.append(np.flatnonzero(np.diff(clock)), len(clock) - 1)[-MOST_POINTS:]
        return Timeline(clock[last], used[last], waiting[last])
    edges = np.linspace(0.0, clock[-1], MOST_POINTS + 1)
    return Timeline(edges[:-1], _means(clock, used, edges), _means(clock, waiting, edges))


def _means(clock: Floats, values: Floats, edges: Floats) -> Floats:
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(clock))])
    means: Floats = np.diff(np.interp(edges, clock, area)) / np.diff(edges)
    return means
