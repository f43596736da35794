"""A model of Voda's scheduler, for runs on other arrivals and for inferring the work of its jobs.

Only the study uses it. It models what shaped the published runs: a rate limit between rounds, a full re-pack at every
change, a pause at every start, the loss of the current epoch at every restart, and Tiresias' counters as its code keeps
them. It does not model lost messages, failing pods and devices that are allocated twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from sterna.experiments.reproduction.voda.algorithms import ALGORITHMS, Candidate
from sterna.experiments.reproduction.voda.packing import WorkerNodes, pack_workers
from sterna.workloads.profiles import PROFILES
from sterna.workloads.published.voda import ASKED, EPOCHS, LEAST, MOST, SubmittedJob

PAUSE_SECONDS = 30.0
"""Time without progress at every start, resize and move."""
RATE_LIMIT_SECONDS = 120.0
"""Least time between rounds, as set for the experiment."""

_NEVER = math.inf
_CAPACITY = (4, 4, 4)
_TICK_SECONDS = 5.0
_THRESHOLD_SECONDS = 1800.0
_PROMOTE = 4.0
_TIRESIAS = "ElasticTiresias"
_ROUNDING = 1e-9


@dataclass
class VodaRun:
    """Times of the jobs in the order of submission, and counts of changes."""

    completion_seconds: list[float]
    device_seconds: list[float]
    makespan_seconds: float
    rounds: int = 0
    starts: int = 0
    halts: int = 0
    resizes: int = 0
    restarts: int = 0
    """Restarts of whole jobs because all of their workers moved."""
    used: list[tuple[float, int]] = field(default_factory=list)
    """Devices in use by the time from which on."""

    @property
    def mean_seconds(self) -> float:
        return sum(self.completion_seconds) / len(self.completion_seconds)


@dataclass
class _VodaJob:
    submit: float
    speed: Sequence[float]
    epochs: int
    epoch_seconds: float
    done: float = 0.0
    """Completed epochs."""
    worker_nodes: WorkerNodes = ()
    since: float = 0.0
    """Time from which on the job makes progress."""
    rate: float = 0.0
    """Epochs per second."""
    finish: float = _NEVER
    device_seconds: float = 0.0
    priority: int = 0
    last_ran: float = 0.0
    last_used: float = 0.0
    last_waited: float = 0.0

    @property
    def end(self) -> float:
        return self.since + (self.epochs - self.done) / self.rate if self.rate else _NEVER

    def advance(self, now: float, span: float) -> None:
        """Account for the `span` that ends now."""
        count = len(self.worker_nodes)
        if count:
            self.device_seconds += count * span
            self.last_ran += span
            self.last_used += count * span
        else:
            self.last_waited += span
        if now > self.since:
            self.done += (now - self.since) * self.rate
            self.since = now

    def roll_back(self) -> None:
        """Discard the current epoch."""
        self.done = float(math.floor(self.done + _ROUNDING))

    def as_candidate(self) -> Candidate:
        remaining_seconds = (self.epochs - math.floor(self.done + _ROUNDING)) * self.epoch_seconds
        return Candidate(LEAST, MOST, ASKED, self.speed, remaining_seconds, self.priority)


def _job_of(submitted: SubmittedJob, work_seconds: float) -> _VodaJob:
    epochs = EPOCHS[submitted.model]
    return _VodaJob(submitted.at_seconds, (0.0, *PROFILES[submitted.model]), epochs, work_seconds / epochs)


def run_voda(
    submitted: Sequence[SubmittedJob], work_seconds: Mapping[str, float], algorithm: str, seed: int
) -> VodaRun:
    """Run the model of Voda under one of its `ALGORITHMS`; the seed breaks ties."""
    return _Scheduler(submitted, work_seconds, algorithm, seed).run()


class _Scheduler:
    """One run of one algorithm."""

    def __init__(
        self,
        submitted: Sequence[SubmittedJob],
        work_seconds: Mapping[str, float],
        algorithm: str,
        seed: int,
    ) -> None:
        self._random = Random(seed)
        self._algorithm = algorithm
        self._jobs = [_job_of(each, work_seconds[each.model]) for each in submitted]
        self._active: list[_VodaJob] = []
        self._arrived = 0
        self._now = 0.0
        self._last_round = -_NEVER
        self._is_round_due = False
        self._tick = _TICK_SECONDS
        self._run = VodaRun([], [], 0.0)

    def run(self) -> VodaRun:
        while self._arrived < len(self._jobs) or self._active:
            self._advance_clock()
            self._end_jobs()
            self._accept()
            if self._algorithm == _TIRESIAS and self._now >= self._tick:
                self._tick = self._now + _TICK_SECONDS
                self._requeue()
            if self._is_round_due and self._now >= self._last_round + RATE_LIMIT_SECONDS:
                self._reschedule()
            self._run.used.append((self._now, sum(len(job.worker_nodes) for job in self._active)))
        result, first = self._run, self._jobs[0].submit
        result.completion_seconds = [job.finish - job.submit for job in self._jobs]
        result.device_seconds = [job.device_seconds for job in self._jobs]
        result.makespan_seconds = max(job.finish for job in self._jobs) - first
        return result

    def _advance_clock(self) -> None:
        """Advance the clock to the next event."""
        then = min((job.end for job in self._active), default=_NEVER)
        if self._arrived < len(self._jobs):
            then = min(then, self._jobs[self._arrived].submit)
        if self._is_round_due:
            then = min(then, max(self._now, self._last_round + RATE_LIMIT_SECONDS))
        if self._algorithm == _TIRESIAS and self._active:
            then = min(then, max(self._now, self._tick))
        for job in self._active:
            job.advance(then, then - self._now)
        self._now = then

    def _end_jobs(self) -> None:
        for job in [job for job in self._active if job.done >= job.epochs - _ROUNDING]:
            job.finish, job.worker_nodes, job.rate = self._now, (), 0.0
            self._active.remove(job)
            self._is_round_due = True

    def _accept(self) -> None:
        while self._arrived < len(self._jobs) and self._jobs[self._arrived].submit <= self._now:
            self._active.append(self._jobs[self._arrived])
            self._arrived += 1
            self._is_round_due = True

    def _requeue(self) -> None:
        """Update Tiresias' queues as the code does: counters reset at each start, and running jobs are promoted too."""
        for job in self._active:
            if job.priority == 0 and job.last_used > _THRESHOLD_SECONDS:
                job.priority = 1
            elif job.priority > 0 and job.last_waited >= _PROMOTE * job.last_ran:
                job.priority = 0
            else:
                continue
            self._is_round_due = True

    def _reschedule(self) -> None:
        self._is_round_due = False
        self._last_round = self._now
        self._run.rounds += 1
        candidates = [job.as_candidate() for job in self._active]
        given = ALGORITHMS[self._algorithm](candidates, sum(_CAPACITY), self._random)
        if any(count != len(job.worker_nodes) for job, count in zip(self._active, given, strict=True)):
            self._apply(given)

    def _apply(self, given: Sequence[int]) -> None:
        before = {row: job.worker_nodes for row, job in enumerate(self._active) if job.worker_nodes}
        sizes = {row: count for row, count in enumerate(given) if count}
        worker_nodes = pack_workers(sizes, before, _CAPACITY, self._random)
        for row, job in enumerate(self._active):
            self._change(job, worker_nodes.get(row, ()))

    def _change(self, job: _VodaJob, worker_nodes: WorkerNodes) -> None:
        """Halt, start, resize or move a job, and charge the cost."""
        old, run = job.worker_nodes, self._run
        if old == worker_nodes:
            return
        if not worker_nodes:
            run.halts += 1
            job.roll_back()
            job.last_waited = 0.0
        elif not old:
            run.starts += 1
            job.last_ran = job.last_used = 0.0
        else:
            run.resizes += len(old) != len(worker_nodes)
            if all(was != now for was, now in zip(old, worker_nodes, strict=False)):
                run.restarts += 1
                job.roll_back()
        job.worker_nodes = worker_nodes
        job.rate = job.speed[len(worker_nodes)] / job.epoch_seconds
        job.since = self._now + PAUSE_SECONDS if worker_nodes else self._now
