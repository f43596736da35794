"""The demo: the same dozen training jobs under three rules, one after the other, watched and compared.

Equal sharing is what happens without a scheduler, FIFO with a core each is what most people run, the third is Sterna.
Every phase is a cluster of its own that knows nothing of the others. Clusters are opened by whoever calls, screens and
pages are elsewhere; here jobs are submitted, watched until all are done, and a phase that others disturbed is repeated.
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
from sterna.experiments.demo.load import LoadMeter, Reading
from sterna.experiments.demo.mix import Assignment
from sterna.model.job import JobSpec
from sterna.service.views import JobView, LogPart, NodeView

DISTURBED = 0.1
"""A phase in which others took more than this part of the CPUs is run again."""

_LOOK_SECONDS = 0.25
_PATIENCE = 20.0
"""How many times as long as it should a phase may take."""
_OVER = ("completed", "failed")


@dataclass(frozen=True)
class Phase:
    """One way to divide the machine."""

    key: str
    title: str
    about: str
    nodes: str
    """As `sterna up --nodes` takes them."""
    is_shared: bool
    rules: tuple[tuple[str, str], ...]
    cpus: int
    """Thousandths of a core that a job asks for; 0: it shares."""


PHASES = 3


def phases(cores: int) -> tuple[Phase, ...]:
    """Rules' intervals are made for jobs of hours; for jobs of seconds they are shortened, nothing else."""
    apart = f"{cores}x1cpu"
    kernel = (("policy", "fifo"), ("placement", "spread"), ("migration", "none"), ("cpu_share", "equal"))
    queue = (("policy", "fifo"), ("placement", "stay"), ("migration", "none"), ("cpu_share", "equal"))
    sterna = (("policy", "fifo"), ("placement", "spread"), ("migration", "balance:interval=1"),
              ("cpu_share", "finish:interval=2"))  # fmt: skip
    return (
        Phase("equal", "Equal sharing", "all at once: what happens without a scheduler", f"1x{cores}cpu", True,
              kernel, 0),
        Phase("fifo", "FIFO", "first come, first served, a core each", apart, False, queue, 1000),
        Phase("sterna", "Sterna", "least left first, moves when it pays", apart, True, sterna, 0),
    )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The jobs at one instant of a phase."""

    at: float
    """Seconds since they were submitted."""
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
    """What came of a phase."""

    phase: Phase
    looks: list[Look]
    others: float
    """Part of the CPUs that others used while there was a job for every core; no number where unknown."""
    control: str = ""
    """What held jobs to their part, in words."""
    discarded: list[float] = field(default_factory=list)
    """What others took in runs of this phase that were thrown away."""

    @property
    def jobs(self) -> tuple[JobView, ...]:
        return self.looks[-1].jobs

    @property
    def seconds(self) -> dict[str, float]:
        """From submission to end, by job."""
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
    """Whoever shows the demo while it runs; this one shows nothing."""

    def prepare(self, cores: int, seconds: float) -> None:
        """The machine is measured, for phases of so many seconds."""

    def begin(self, phase: Phase, url: str, is_again: bool) -> None:
        """A phase begins."""

    def show(self, phase: Phase, look: Look) -> None:
        """Where it stands, a few times a second."""

    def end(self, result: PhaseResult, will_repeat: bool) -> None:
        """It is over."""

    def close(self) -> None:
        """Nothing more will be shown while it runs; also after an interruption."""


Opening = Callable[[Phase], AbstractContextManager[DemoCluster]]


class Demo:
    """Runs phases on clusters that it is given."""

    def __init__(
        self, work: Sequence[Assignment], opening: Opening, meter: LoadMeter, watcher: Watcher, repeats: int = 1
    ) -> None:
        self._work, self._opening, self._meter, self._watcher = list(work), opening, meter, watcher
        self._repeats = repeats

    def run(self, all_phases: Sequence[Phase]) -> list[PhaseResult]:
        return [self._undisturbed(phase) for phase in all_phases]

    def _undisturbed(self, phase: Phase) -> PhaseResult:
        """The run that was disturbed least. Where a repetition is disturbed as well it is the machine that is busy, and
        nothing more is repeated."""
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

    def _run(self, phase: Phase, is_again: bool) -> PhaseResult:
        with self._opening(phase) as cluster:
            self._watcher.begin(phase, cluster.url, is_again)
            specs = [each.spec(phase.cpus, cluster.working_dir) for each in self._work]
            since = self._meter.read()
            cluster.service.create(specs)
            looks, others = self._watch(phase, cluster.service, since)
            control = cluster.service.nodes()[0].control
        return PhaseResult(phase, looks, others, control)

    def _watch(self, phase: Phase, service: JobRunner, since: Reading) -> tuple[list[Look], float]:
        """Look until all are done; what others took is measured up to when a core has nothing more to do, because from
        then on nobody is disturbed by whoever uses it."""
        looks: list[Look] = []
        others = math.nan
        limit_seconds = _PATIENCE * sum(each.cpu_seconds for each in self._work)
        while True:
            look = Look(time.monotonic() - since.at, tuple(service.jobs()))
            looks.append(look)
            self._watcher.show(phase, look)
            for job in look.jobs:
                if job.state == "failed":
                    raise UserError(_failure(job, service))
            active = sum(job.state not in _OVER for job in look.jobs)
            if active >= self._meter.count or len(looks) == 1:
                others = self._meter.others(since, self._meter.read(), math.fsum(job.cpu_seconds for job in look.jobs))
            if not active:
                return looks, others
            if look.at > limit_seconds:
                raise UserError(
                    f"{phase.title} has not ended after {look.at:.0f} s; this machine is too busy for the demo, try "
                    "again when it is quieter."
                )
            time.sleep(_LOOK_SECONDS)


def _failure(job: JobView, service: JobRunner) -> str:
    said = service.log(job.name, offset=-2000)[0].decode(errors="replace").strip().splitlines()
    last = said[-1] if said else "it said nothing"
    return (
        f"The demo's job '{job.name}' ended with code {job.exit_code} ({last}); was it ended from outside, or is "
        "memory short? Try again."
    )
