"""What no scheduler can beat: all nodes as one pool, jobs cut and moved for nothing, everything known beforehand.

Shortest remaining first is as good as can be for the mean, longest remaining first for the makespan; both are oracles.
"""

from __future__ import annotations

from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.model.snapshot import NEVER
from sterna.workloads.published import specon

_SLICE_SECONDS = 5.0
"""Longest first lets the longest take turns; so often they change."""


def pooled(workload: SharedWorkload, *, longest_first: bool = False) -> list[float]:
    """When each job would end."""
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
