"""What kube-scheduler makes of parameter-server jobs: it knows pods, not jobs.

Each pod gets a device as soon as one is free, and holds it while the rest of its job waits; a job trains once all its
pods run. Kept as a policy for the real engine, for the `dragon` study only: nobody should want to schedule so. That a
pod comes back from its back-off too late for a free device is left out, in the default's favour.
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
"""Speed of a job that lacks a pod: none, but a number that can be divided by."""

FOR_EVER_SECONDS = 1e9
"""A run that lasts beyond this came to a standstill: all devices are held by jobs that lack a pod."""


@dataclass(frozen=True)
class PodByPod:
    """Every pod on its own: in the order of submission, or by chance, as back-offs end."""

    seed: int | None = None
    """None: in order."""

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
    """The same jobs, each of which may hold any part of its workers and trains with all of them only."""
    kinds, curve = np.unique(np.stack([workload.curve, workload.request]), axis=1, return_inverse=True)
    rows = [(STANDSTILL,) * (asked - 1) + (workload.curves.speed_of(code, asked),) for code, asked in kinds.T.tolist()]
    return replace(
        workload,
        minimum=np.ones_like(workload.request),
        maximum=workload.request,
        curve=curve.reshape(-1).astype(np.int64) + 1,
        curves=Curves(((1.0,), *rows)),
    )
