"""The shadow of a shared cluster: when each job would end had everybody been left to share alike from the start.

For the guard of a share rule, which lets nobody end much later than that. Jobs go to the node with the fewest, divide
its cores equally and are never moved. How much work a job has in all is taken from what is known of it at the moment,
so the shadow becomes as good as the forecasts; where the total is unknown nothing is foretold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.node_slices import Slices
from sterna.control.progress_tracker import Training
from sterna.engine.cpu_sharing.forecast import equal_ends, max_min

_LEAST_LEFT = 1e-3
"""Core-seconds of a job that really has not ended though its shadow should have."""


@dataclass
class _Ghost:
    """A job in the shadow."""

    node: int
    cap: float
    done: float = 0.0
    total: float = math.inf
    """Core-seconds; without end where unknown."""
    ended_at: float = math.nan

    @property
    def left(self) -> float:
        return max(self.total - self.done, 0.0)


class Shadow:
    """What equal sharing would have done so far."""

    def __init__(self, slices: Slices, now: float) -> None:
        self._cores = [float(len(node.cores)) for node in slices.nodes]
        self._ghosts: dict[int, _Ghost] = {}
        self._now = now

    def ends_by(self, now: float, jobs: Sequence[LocalJob], training: Training) -> Mapping[int, float]:
        """When each of these jobs ends there or has ended, as far as can be told now."""
        self._advance(now)
        present = {job.key for job in jobs}
        for key in [key for key in self._ghosts if key not in present]:
            del self._ghosts[key]
        for job in jobs:
            self._update(job, training)
        ends = {key: ghost.ended_at for key, ghost in self._ghosts.items()}
        for node, cores in enumerate(self._cores):
            here = self._running(node)
            ends.update(_foretold(now, cores, here))
        return ends

    def _update(self, job: LocalJob, training: Training) -> None:
        ghost = self._ghosts.get(job.key)
        if ghost is None:
            counts = [len(self._running(node)) for node in range(len(self._cores))]
            node = counts.index(min(counts))
            ghost = self._ghosts[job.key] = _Ghost(node, job.cores * max(1, job.record.spec.request))
        course = job.course
        remaining = training.remaining(course) if course else math.nan
        had = course.pace.work if course is not None and course.pace is not None else 0.0
        if not math.isnan(remaining):
            ghost.total = (had + remaining) * job.cores

    def _running(self, node: int) -> dict[int, _Ghost]:
        return {key: ghost for key, ghost in self._ghosts.items() if ghost.node == node and math.isnan(ghost.ended_at)}

    def _advance(self, now: float) -> None:
        for node, cores in enumerate(self._cores):
            at, here = self._now, list(self._running(node).values())
            while here and at < now:
                rates = max_min(cores, [1.0] * len(here), [ghost.cap for ghost in here])
                soonest = min(ghost.left / rate for ghost, rate in zip(here, rates, strict=True))
                step = min(soonest, now - at)
                at += step
                for ghost, rate in zip(here, rates, strict=True):
                    ghost.done += rate * step
                    if ghost.left <= _LEAST_LEFT:
                        ghost.ended_at = at
                here = [ghost for ghost in here if math.isnan(ghost.ended_at)]
        self._now = now


def _foretold(now: float, cores: float, here: Mapping[int, _Ghost]) -> dict[int, float]:
    left = [ghost.left for ghost in here.values()]
    if left and max(left) < math.inf:
        seconds = equal_ends(cores, [ghost.cap for ghost in here.values()], left)
        return {key: now + span for key, span in zip(here, seconds, strict=True)}
    # Somebody's end is unknown: the others are foretold as if it stayed for ever.
    ends = {}
    for key, ghost in here.items():
        rate = min(ghost.cap, cores / len(here))
        ends[key] = now + ghost.left / rate if ghost.left < math.inf else math.nan
    return ends
