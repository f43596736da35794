"""Run the same twelve training jobs in three phases: equal sharing, FIFO with a core each, and Sterna.

The caller opens a cluster for each phase. This module submits the jobs, polls them until all are done, and repeats a
phase that was disturbed by other processes. `screen` and `report` show the results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from sterna.errors import UserError
from sterna.experiments.demo.load import LoadMeter, LoadReading
from sterna.experiments.demo.mix import TrainingTask
from sterna.model.job import JobSpec
from sterna.service.views import JobView, LogPart, NodeView
from sterna.settings import DEFAULT_POLICY

DISTURBED = 0.1
"""A phase is repeated if other processes used more than this fraction of the CPUs."""

_LOOK_SECONDS = 0.25
_PATIENCE = 20.0
"""Timeout of a phase, as a multiple of its expected length."""
_OVER = ("completed", "failed")


@dataclass(frozen=True)
class DemoPhase:
    """One way to divide the machine: nodes and rules."""

    key: str
    title: str
    about: str
    nodes: str
    """Value of `sterna up --nodes`."""
    is_shared: bool
    rules: tuple[tuple[str, str], ...]
    cpus: int
    """Thousandths of a core that a job requests; 0 on shared nodes."""


PHASES = 3


def phases(cores: int) -> tuple[DemoPhase, ...]:
    """Return the phases; rules have their defaults, except for shorter intervals, because jobs take seconds."""
    apart = f"{cores}x1cpu"
    kernel = (("policy", "fifo"), ("placement", "spread"), ("migration", "none"), ("cpu_share", "equal"))
    queue = (("policy", "fifo"), ("placement", "stay"), ("migration", "none"), ("cpu_share", "equal"))
    sterna = (("policy", DEFAULT_POLICY), ("placement", "spread"), ("migration", "balance:interval=1"),
              ("cpu_share", "finish:interval=2"))  # fmt: skip
    return (
        DemoPhase("equal", "Equal sharing", "all at once: what happens without a scheduler", f"1x{cores}cpu", True,
              kernel, 0),
        DemoPhase("fifo", "FIFO", "first come, first served, a core each", apart, False, queue, 1000),
        DemoPhase("sterna", "Sterna", "least left first, moves when it pays", apart, True, sterna, 0),
    )  # fmt: skip


@dataclass(frozen=True)
class JobsSample:
    """State of the jobs at one instant of a phase."""

    at: float
    """Seconds since submission."""
    jobs: tuple[JobView, ...]

    @property
    def done(self) -> int:
        return sum(job.state == "completed" for job in self.jobs)

    @property
    def progress(self) -> float:
        return fmean(progress_of(job) for job in self.jobs) if self.jobs else 0.0


def progress_of(job: JobView) -> float:
    if job.state == "completed":
        return 1.0
    return min((job.step or 0) / job.total, 1.0) if job.total else 0.0


@dataclass
class PhaseResult:
    """Polled states of the jobs of a phase, and what disturbed it."""

    phase: DemoPhase
    samples: list[JobsSample]
    others: float
    """Fraction of the CPUs that other processes used while there was a job for every core; NaN if unknown."""
    control: str = ""
    """Mechanism that enforced CPU shares, in words."""
    discarded: list[float] = field(default_factory=list)
    """`others` of the repeated runs of this phase."""

    @property
    def jobs(self) -> tuple[JobView, ...]:
        return self.samples[-1].jobs

    @property
    def seconds(self) -> dict[str, float]:
        """Return seconds from submission to end, by job."""
        return {job.name: (job.ended_at or math.nan) - job.submitted_at for job in self.jobs}

    @property
    def mean_seconds(self) -> float:
        return fmean(self.seconds.values())

    @property
    def longest_seconds(self) -> float:
        return max(self.seconds.values())

    @property
    def moves(self) -> int:
        return sum(job.moves for job in self.jobs)

    @property
    def lost_seconds(self) -> float:
        return math.fsum(job.lost_seconds for job in self.jobs)

    @property
    def cpu_seconds(self) -> float:
        return math.fsum(job.cpu_seconds for job in self.jobs)

    @property
    def is_disturbed(self) -> bool:
        return self.others > DISTURBED


class JobRunner(Protocol):
    """The verbs of a local cluster that the demo uses."""

    def create(self, specs: Sequence[JobSpec]) -> list[JobView]: ...

    def jobs(self) -> list[JobView]: ...

    def nodes(self) -> list[NodeView]: ...

    def log(self, name: str, replica: str = "", offset: int = 0) -> LogPart: ...


@dataclass(frozen=True)
class DemoCluster:
    """A cluster that was opened for one phase."""

    service: JobRunner
    url: str
    working_dir: str


class Watcher:
    """Observer of a running demo. This one does nothing."""

    def prepare(self, cores: int, seconds: float) -> None:
        """Called before the machine is measured, with the length of a phase."""

    def begin(self, phase: DemoPhase, url: str, is_again: bool) -> None:
        """Called when a phase begins."""

    def show(self, phase: DemoPhase, sample: JobsSample) -> None:
        """Called a few times a second."""

    def end(self, result: PhaseResult, will_repeat: bool) -> None:
        """Called when a phase has ended."""

    def close(self) -> None:
        """Called last, also after an interruption."""


OpenCluster = Callable[[DemoPhase], AbstractContextManager[DemoCluster]]


class Demo:
    """Runs phases on clusters that `opening` provides."""

    def __init__(
        self, work: Sequence[TrainingTask], opening: OpenCluster, meter: LoadMeter, watcher: Watcher, repeats: int = 1
    ) -> None:
        self._work, self._opening, self._meter, self._watcher = list(work), opening, meter, watcher
        self._repeats = repeats

    def run(self, all_phases: Sequence[DemoPhase]) -> list[PhaseResult]:
        return [self._run_until_quiet(phase) for phase in all_phases]

    def _run_until_quiet(self, phase: DemoPhase) -> PhaseResult:
        """Return the least disturbed run. If the repetition is disturbed too, the machine is busy and later phases are
        not repeated."""
        tries: list[PhaseResult] = []
        while True:
            result = self._run(phase, is_again=bool(tries))
            tries.append(result)
            will_repeat = result.is_disturbed and len(tries) == 1 and self._repeats > 0
            self._watcher.end(result, will_repeat)
            if not will_repeat:
                break
            self._repeats -= 1
        if len(tries) > 1 and result.is_disturbed:
            self._repeats = 0
        best = min(tries, key=lambda each: each.others if each.others == each.others else 0.0)
        best.discarded = [each.others for each in tries if each is not best]
        return best

    def _run(self, phase: DemoPhase, is_again: bool) -> PhaseResult:
        with self._opening(phase) as cluster:
            self._watcher.begin(phase, cluster.url, is_again)
            specs = [each.spec(phase.cpus, cluster.working_dir) for each in self._work]
            since = self._meter.read()
            cluster.service.create(specs)
            samples, others = self._watch(phase, cluster.service, since)
            control = cluster.service.nodes()[0].control
        return PhaseResult(phase, samples, others, control)

    def _watch(self, phase: DemoPhase, service: JobRunner, since: LoadReading) -> tuple[list[JobsSample], float]:
        """Poll until all jobs are done. The load of other processes counts only while every core has a job: others
        may use an idle core without disturbing a job."""
        samples: list[JobsSample] = []
        others = math.nan
        limit_seconds = _PATIENCE * sum(each.cpu_seconds for each in self._work)
        while True:
            sample = JobsSample(time.monotonic() - since.at, tuple(service.jobs()))
            samples.append(sample)
            self._watcher.show(phase, sample)
            for job in sample.jobs:
                if job.state == "failed":
                    raise UserError(_failure(job, service))
            active = sum(job.state not in _OVER for job in sample.jobs)
            if active >= self._meter.count or len(samples) == 1:
                others = self._meter.others(
                    since, self._meter.read(), math.fsum(job.cpu_seconds for job in sample.jobs)
                )
            if not active:
                return samples, others
            if sample.at > limit_seconds:
                raise UserError(
                    f"{phase.title} has not ended after {sample.at:.0f} s; this machine is too busy for the demo, try "
                    "again when it is quieter."
                )
            time.sleep(_LOOK_SECONDS)


def _failure(job: JobView, service: JobRunner) -> str:
    lines = service.log(job.name, offset=-2000)[0].decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    return (
        f"The demo's job '{job.name}' ended with code {job.exit_code} ({last}); was it ended from outside, or is "
        "memory short? Try again."
    )
