"""The peer of simulations: first-fit FIFO as a bare NumPy event loop, without nodes, policy, plan, check and reasons.

It is a lower bound on the cost of an event in Python, so that a ratio to it means the same on every machine. Its
results equal those of `fifo:preempt=false` with placement `none`.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def bare_fifo(submit: Floats, workers: Ints, duration: Floats, devices: int) -> Floats:
    """Return the finish time of each job; rows in submit order."""
    finish = np.full(len(submit), np.inf)
    arrivals, length, need = submit.tolist(), duration.tolist(), workers.tolist()
    ends: list[tuple[float, int]] = []
    queue = np.empty(0, dtype=np.int64)
    came, free = 0, devices
    while came < len(arrivals) or ends:
        now = min(arrivals[came] if came < len(arrivals) else np.inf, ends[0][0] if ends else np.inf)
        while ends and ends[0][0] <= now:
            free += need[heapq.heappop(ends)[1]]
        first = came
        while came < len(arrivals) and arrivals[came] <= now:
            came += 1
        queue = np.concatenate([queue, np.arange(first, came)])
        size = workers[queue]
        fitting = np.flatnonzero(size <= free)
        if not len(fitting):
            continue
        started = np.concatenate(_first_fit(size, fitting, free))
        for row in queue[started].tolist():
            free -= need[row]
            finish[row] = now + length[row]
            heapq.heappush(ends, (now + length[row], row))
        queue = np.delete(queue, started)
    return finish


def _first_fit(size: Ints, fitting: Ints, free: int) -> list[Ints]:
    """Places in the queue that start now: cut where the sum passes what is free, go on with what still fits."""
    taken: list[Ints] = []
    while len(fitting):
        total = size[fitting].cumsum()
        cut = int(total.searchsorted(free, side="right"))
        taken.append(fitting[:cut])
        free -= int(total[cut - 1])
        fitting = fitting[cut + 1 :]
        fitting = fitting[size[fitting] <= free]
    return taken
