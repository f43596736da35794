"""What the jobs of a cluster tell of themselves, and what follows for rules, statuses and people.

Monitors send what pods have told; here it finds its job, is brought to the operator's clock, and goes through
`control/training`, as on one machine. Of a gang one pod speaks for all: the lowest that is heard of. The columns that
rules read are kept current as reports arrive, so that a snapshot of thousands of jobs takes them by index. After a
restart the job's own memory says how far it was, and monitors tell the rest again; what jobs have taught others is kept
by `kept_lessons.py`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, PodState
from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodReports
from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressState, ProgressTracker, SpeedSample, category_of
from sterna.model.cluster import MILLI, Ints
from sterna.model.eta import Band
from sterna.model.growth import Growth, GrowthRule
from sterna.model.job import ReplicaSpec
from sterna.model.learned import CategoryRecord, restart_seconds
from sterna.model.snapshot import NEVER
from sterna.model.speedup import LINEAR, Curves, Floats
from sterna.progress.report import Report

_SILENT_SECONDS = 30.0
"""A pod that has said nothing for so long no longer speaks for its job, if another one does."""
_SKEW_SECONDS = 2.0
"""Clocks that differ by less count as the same: the way a batch takes is no faster."""
_POINTS = 64
"""Of a job's course that are kept for people to look at; when they are full every other one goes."""

Find = Callable[[str], tuple[KubeJob, PodRow] | None]
"""The job of a pod, by the pod's uid."""


class ProgressColumns(NamedTuple):
    """Columns of a snapshot, an entry for each job that was asked for."""

    remaining: Floats
    growth: Ints
    growth_rate: Floats
    growth_since: Floats
    curve: Ints


class ProgressView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a job is, for statuses and commands."""

    step: int | None = None
    total: int | None = None
    metric: str = ""
    value: float | None = None
    growth: str = "unknown"
    eta_seconds: float | None = None
    """Until its last step, if it goes on as lately; from the moment of its last report."""
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None
    reported_at: float | None = None

    @property
    def percent(self) -> int | None:
        if self.step is None or not self.total:
            return None
        return min(100, 100 * self.step // self.total)


class Point(NamedTuple):
    """A report, as far as it is kept for people."""

    at: float
    step: int | None
    total: int | None
    value: float | None


@dataclass
class _Voice:
    """Who speaks for a job, and what else is kept of it."""

    job: KubeJob
    course: ProgressState
    worker: ReplicaSpec
    """The type whose number counts for its pace."""
    uid: str = ""
    rank: tuple[int, str] = (0, "")
    attempt: int = -1
    heard_at: float = -NEVER
    has_told: bool = False
    """In this attempt, so that what a restart costs has been learned from it."""
    cpu_seconds: float = 0.0
    points: list[Point] = field(default_factory=list)


class Progress:
    """The courses of all jobs of a cluster. For one thread: the one that decides."""

    def __init__(self, rule: GrowthRule | None = None) -> None:
        """`rule` is for life: rules are settings of the operator, and another operator is told everything again."""
        self._training = ProgressTracker(LearnedCurves(), rule)
        self._voices: dict[int, _Voice] = {}
        self._rows: dict[int, int] = {}
        """Of the same jobs, in the columns."""
        self._alike: dict[str, set[int]] = {}
        """Keys of the jobs of a category."""
        self._table = _Table()
        self._heard: dict[str, dict[str, float]] = {}
        """When a pod last told something, by uid and source, on its own clock."""
        self._skew: dict[str, float] = {}
        """By how much the clock of a node is behind ours."""
        self._restart_seconds: float | None = None
        self.memory = secrets.token_hex(8)
        """Names what was heard: monitors that know another name tell all they remember."""

    # Which jobs.

    def follow(self, job: KubeJob) -> None:
        """Begin to listen to a job that has not ended; what it remembers of itself counts until it is heard of."""
        spec = job.parsed_job.spec
        known = self._voices.get(job.key)
        if known is not None:
            known.job, known.worker = job, spec.worker
            return
        category = category_of(spec.name, spec.category)
        course = self._training.follow(job.key, spec.progress, category)
        memory = job.persisted
        course.step, course.total, course.value = memory.step, memory.total or course.total, memory.value
        self._voices[job.key], self._rows[job.key] = _Voice(job, course, spec.worker), self._table.take_row()
        self._alike.setdefault(category, set()).add(job.key)
        self._refresh(job.key)

    def forget(self, key: int, is_complete: bool = False) -> None:
        """Stop listening; what a completed job's forecasts were worth is kept."""
        voice = self._voices.pop(key, None)
        if voice is None:
            return
        self._training.forget(key, is_complete)
        self._table.free_row(self._rows.pop(key))
        alike = self._alike[voice.course.category]
        alike.discard(key)
        if not alike:
            del self._alike[voice.course.category]

    def forget_pod(self, uid: str) -> None:
        """It is gone, and will not be heard of again."""
        self._heard.pop(uid, None)

    # Reports.

    def take(self, batches: Iterable[Batch], find: Find, now: float) -> set[int]:
        """Take in what monitors sent; the keys of jobs about which a rule would now think otherwise. A job's memory
        is brought up to date with it."""
        spoken: dict[int, list[ProgressReport]] = {}
        for batch in batches:
            if batch.memory != self.memory:
                continue  # its monitor tells it again, after what came before it
            ahead = self._ahead(batch, now)
            for pod in batch.pods:
                found = find(pod.uid)
                if found is not None and found[0].key in self._voices:
                    told = [_told(report, ahead, now) for report in self._fresh(pod)]
                    self._hear(*found, told, now, spoken)
        heard = []
        for key, told in spoken.items():
            told.sort(key=lambda each: each.at)
            heard.append((key, told, self._pace(self._voices[key], told)))
        return self._learn(heard)

    def _ahead(self, batch: Batch, now: float) -> float:
        """What to add to the times of a node."""
        seen = now - batch.sent_at if math.isfinite(batch.sent_at) else 0.0
        known = self._skew.setdefault(batch.node, seen)
        if abs(seen - known) > _SKEW_SECONDS:
            known = self._skew[batch.node] = seen
        return known if abs(known) > _SKEW_SECONDS else 0.0

    def _fresh(self, pod: PodReports) -> list[Report]:
        """What was not heard before: a monitor that restarts, or does not know whether it was heard, tells again."""
        heard = self._heard.setdefault(pod.uid, {})
        before = dict(heard)
        fresh = [r for r in pod.reports if math.isfinite(r.at) and r.at > before.get(r.source, -NEVER)]
        for report in fresh:
            heard[report.source] = max(heard.get(report.source, -NEVER), report.at)
        return fresh

    def _hear(
        self, job: KubeJob, pod: PodRow, told: list[ProgressReport], now: float, spoken: dict[int, list[ProgressReport]]
    ) -> None:
        voice, memory = self._voices[job.key], job.persisted
        saved = max((each.at for each in told if each.saved), default=0.0)
        memory.saved_at = max(memory.saved_at, saved)
        if not told or pod.attempt < memory.attempt or not self._speaks(voice, pod, now):
            return
        self._learn_restart(voice, told)
        spoken.setdefault(job.key, []).extend(told)

    def _speaks(self, voice: _Voice, pod: PodRow, now: float) -> bool:
        rank = (pod.index, pod.type)
        is_new = pod.attempt != voice.attempt
        if pod.uid != voice.uid and not is_new and rank >= voice.rank and now - voice.heard_at <= _SILENT_SECONDS:
            return False
        if is_new:
            voice.has_told = False
        if pod.uid != voice.uid:
            voice.cpu_seconds = 0.0
        voice.uid, voice.rank, voice.attempt, voice.heard_at = pod.uid, rank, pod.attempt, now
        return True

    def _learn_restart(self, voice: _Voice, told: Sequence[ProgressReport]) -> None:
        """How long a job stood still that was started again: until it first told something."""
        memory = voice.job.persisted
        started = memory.started_at
        if voice.has_told or started is None:
            return
        first = next((each.at for each in told if each.at > started), None)
        if first is None:
            return
        voice.has_told = True
        if memory.first_started_at is not None and started > memory.first_started_at:
            self._training.learned_curves.add_restart(voice.course.category, first - started)
            self._restart_seconds = None

    def _pace(self, voice: _Voice, told: Sequence[ProgressReport]) -> SpeedSample:
        """At its last report. A pod without devices that is alone shares its node with others, so that what counts is
        the CPU it was given; elsewhere it is the time that passed."""
        job, memory, worker = voice.job, voice.job.persisted, voice.worker
        workers = max(1, _running(job, worker.type))
        voice.cpu_seconds = max([voice.cpu_seconds, *(each.cpu_seconds for each in told)])
        if voice.cpu_seconds and workers == 1 and not job.parsed_job.shape.devices:
            return SpeedSample(voice.attempt, workers, voice.cpu_seconds / max(1, -(-worker.cpus // MILLI)))
        started = memory.started_at if memory.started_at is not None else told[-1].at
        return SpeedSample(voice.attempt, workers, memory.executed + max(0.0, told[-1].at - started))

    def _learn(self, heard: Sequence[tuple[int, list[ProgressReport], SpeedSample]]) -> set[int]:
        learned = self._training.learned_curves
        categories = {self._voices[key].course.category for key, _, _ in heard}
        before = {category: (learned.row(category), learned.step_seconds(category)) for category in categories}
        news = self._training.add_reports(heard)
        changed = {key for key, _, _ in heard}
        for category, known in before.items():
            if known != (learned.row(category), learned.step_seconds(category)):
                changed |= self._alike[category]
        for key, told, _ in heard:
            self._remember(self._voices[key], told)
        for key in changed:
            self._refresh(key)
        return news

    def _remember(self, voice: _Voice, told: Sequence[ProgressReport]) -> None:
        course, memory = voice.course, voice.job.persisted
        memory.step, memory.total, memory.metric, memory.value = course.step, course.total, course.metric, course.value
        voice.points += [Point(each.at, each.step, each.total, each.metrics.get(course.metric)) for each in told]
        while len(voice.points) > _POINTS:
            voice.points = voice.points[:-1:2] + voice.points[-1:]

    def _refresh(self, key: int) -> None:
        course, training = self._voices[key].course, self._training
        self._table.set(
            self._rows[key],
            training.remaining(course),
            training.growth_of(course),
            course.rate,
            course.growth_since,
            training.learned_curves.row(course.category),
        )

    # What follows from them.

    def columns(self, keys: Sequence[int]) -> ProgressColumns:
        """For a snapshot: an entry for each of these jobs; those that are not followed have nothing known of them."""
        return self._table.of(list(map(self._rows.get, keys, repeat(0))))

    @property
    def curves(self) -> Curves:
        """The speed-up curves that `columns` refers to."""
        return self._training.learned_curves.table.curves

    @property
    def restart_seconds(self) -> float:
        """What it costs to start a job again, by all that was seen."""
        if self._restart_seconds is None:
            self._restart_seconds = restart_seconds(self._training.learned_curves.learned.lessons)
        return self._restart_seconds

    def view(self, key: int, has_eta: bool = True) -> ProgressView:
        """`has_eta`: leave it out where it is not shown, because it costs more than all the rest."""
        voice = self._voices.get(key)
        if voice is None:
            return ProgressView()
        course = voice.course
        band = self._training.eta(course) if has_eta else None
        growth = "unknown" if course.value is None else self._training.growth_of(course).name.lower()
        heard = None if course.reported_at == -NEVER else course.reported_at
        metric = course.metric or voice.job.persisted.metric
        return ProgressView(course.step, course.total, metric, course.value, growth, *_seconds(band), reported_at=heard)

    def steps_left(self, key: int) -> float:
        """No number where the total is unknown."""
        voice = self._voices.get(key)
        return math.nan if voice is None else voice.course.steps_left

    def history(self, key: int) -> list[Point]:
        """Some of its reports, spread over its life, oldest first; the newest is always there."""
        voice = self._voices.get(key)
        return [] if voice is None else list(voice.points)

    @property
    def learned_curves(self) -> LearnedCurves:
        """What jobs have taught so far."""
        return self._training.learned_curves

    def recall(self, known: Iterable[CategoryRecord]) -> None:
        """What jobs have taught a predecessor."""
        self._training.learned_curves.recall(known)
        self._restart_seconds = None
        for key in self._voices:
            self._refresh(key)


def unsaved_seconds(job: KubeJob, now: float) -> float:
    """Work that moving it would throw away: none of one that has shown that it saves when asked, and none where there
    are no devices to move it for."""
    memory = job.persisted
    if not job.parsed_job.shape.devices or memory.started_at is None or memory.saved_step >= 0:
        return 0.0
    return max(0.0, now - max(memory.saved_at, memory.started_at))


class _Table:
    """The columns of all jobs, a row each; row 0 stands for those of which nothing is known."""

    def __init__(self) -> None:
        self._columns = _unknown(8)
        self._free = list(range(7, 0, -1))

    def take_row(self) -> int:
        if not self._free:
            size = len(self._columns.remaining)
            more = zip(self._columns, _unknown(size), strict=True)
            self._columns = ProgressColumns(*(np.concatenate(pair) for pair in more))
            self._free = list(range(2 * size - 1, size - 1, -1))
        return self._free.pop()

    def free_row(self, row: int) -> None:
        self._free.append(row)

    def set(self, row: int, *values: float) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column[row] = value

    def of(self, rows: Sequence[int]) -> ProgressColumns:
        at, all_rows = np.array(rows, dtype=np.int64), self._columns
        return ProgressColumns(
            all_rows.remaining[at],
            all_rows.growth[at],
            all_rows.growth_rate[at],
            all_rows.growth_since[at],
            all_rows.curve[at],
        )


def _unknown(rows: int) -> ProgressColumns:
    return ProgressColumns(
        np.full(rows, np.nan),
        np.full(rows, int(Growth.PROGRESSING), dtype=np.int64),
        np.full(rows, np.nan),
        np.full(rows, -NEVER),
        np.full(rows, LINEAR, dtype=np.int64),
    )


def _told(report: Report, ahead: float, now: float) -> ProgressReport:
    """On our clock; nothing was told later than now, whatever a file says of itself."""
    at = min(report.at + ahead, now)
    return ProgressReport(at, report.step, report.total, report.metrics, report.saved, report.cpu_seconds)


def _running(job: KubeJob, worker: str) -> int:
    return sum(pod.type == worker and pod.state is PodState.RUNNING for pod in job.pods.values())


def _seconds(band: Band | None) -> tuple[float | None, float | None, float | None]:
    """The middle and both ends; what is beyond any number is not told."""
    if band is None:
        return None, None, None
    middle, low, high = (value if math.isfinite(value) else None for value in (band.middle, band.low, band.high))
    return middle, low, high
