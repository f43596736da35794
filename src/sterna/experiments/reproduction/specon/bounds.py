"""Bounds for any scheduler: all nodes as one pool, free preemption and moves, perfect knowledge.

Shortest remaining first bounds the mean, longest remaining first the makespan.
"""

from __future__ import annotations

from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.model.snapshot import NEVER
from sterna.workloads.published import specon

_SLICE_SECONDS = 5.0
"""Time slice of longest first, under which the longest jobs take turns."""


def pool_finish_times(workload: SharedWorkload, *, longest_first: bool = False) -> list[float]:
    """Return the finish time of each job on the pool."""
    submit, left = workload.submit.tolist(), workload.work.tolist()
    cap = specon.CORES_A_JOB
    room = int(specon.NODES * specon.CORES // cap)
    finish = [NEVER] * len(left)
    active: list[int] = []
    now, arrived = 0.0, 0
    while arrived < len(left) or active:
        active.sort(key=left.__getitem__, reverse=longest_first)
        running = active[:room]
        then = submit[arrived] if arrived < len(left) else NEVER
        if running:
            then = min(then, now + min(left[job] for job in running) / cap)
            if longest_first and len(active) > room:
                then = min(then, now + _SLICE_SECONDS)
        for job in running:
            left[job] -= cap * (then - now)
        now = then
        for job in [job for job in running if left[job] <= 1e-9 * workload.work[job]]:
            finish[job] = now
            active.remove(job)
        while arrived < len(left) and submit[arrived] <= now:
            active.append(arrived)
            arrived += 1
    return finish
