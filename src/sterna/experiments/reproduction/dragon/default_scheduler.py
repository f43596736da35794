"""Model of kube-scheduler for parameter-server jobs: it schedules pods, not jobs.

Each pod gets a free device at once and holds it while the rest of its job waits; a job trains once all its pods run. It
is a policy for the real engine that only the `dragon` study uses. Idle devices while pods are in back-off are not
modelled, in favour of the default scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sterna.backends.simulated.workload import Workload
from sterna.engine.registry import Target
from sterna.model.cluster import MILLI
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Curves

STANDSTILL = 1e-12
"""Speed of a job that lacks a pod; above 0, because it is divided by."""

DEADLOCK_SECONDS = 1e9
"""Makespan above which a run is a deadlock: all devices are held by jobs that lack a pod."""


@dataclass(frozen=True)
class PodByPod:
    """Schedule pods one by one: in the order of submission, or in random order, as back-offs end."""

    seed: int | None = None
    """Seed of the random order; None: the order of submission."""

    def __call__(self, snapshot: Snapshot) -> Target:
        jobs = snapshot.jobs
        target = jobs.workers.copy()
        pending = np.repeat(np.arange(len(jobs)), jobs.request - target)
        free = snapshot.free_units // MILLI
        if self.seed is not None and 0 < free < len(pending):
            pending = np.random.default_rng([self.seed, int(1000 * snapshot.now)]).permutation(pending)
        np.add.at(target, pending[:free], 1)
        return Target(target)


def without_gangs(workload: Workload) -> Workload:
    """Let each job hold any number of its workers, and train only with all of them."""
    kinds, curve = np.unique(np.stack([workload.curve, workload.request]), axis=1, return_inverse=True)
    rows = [(STANDSTILL,) * (asked - 1) + (workload.curves.speed_of(code, asked),) for code, asked in kinds.T.tolist()]
    return replace(
        workload,
        minimum=np.ones_like(workload.request),
        maximum=workload.request,
        curve=curve.reshape(-1).astype(np.int64) + 1,
        curves=Curves(((1.0,), *rows)),
    )
