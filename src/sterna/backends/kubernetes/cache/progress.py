"""Progress of all jobs of a cluster, from the reports of monitors, for rules, statuses and commands.

Each report is matched to its job, converted to the operator's clock, and passed to `control.progress_tracker`. In a
gang one pod reports for all: the lowest ordinal that sends reports. The columns that rules read are updated as reports
arrive, so that a snapshot of thousands of jobs only indexes them. After a restart the persisted state holds the last
step of a job, and monitors send the rest again; learned curves are stored by `learned_store.py`.
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
from sterna.control.job_state import SaveEvidence
from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressState, ProgressTracker, SpeedSample, category_of
from sterna.model.cluster import MILLI, Ints
from sterna.model.eta import Band
from sterna.model.growth import Growth, GrowthRule
from sterna.model.job import ReplicaSpec
from sterna.model.learned import CategoryRecord, Prior, restart_seconds
from sterna.model.snapshot import NEVER
from sterna.model.speedup import LINEAR, Curves, Floats
from sterna.progress.report import SourceReport

_SILENT_SECONDS = 30.0
"""Time without a report after which another pod may report for the job."""
_SKEW_SECONDS = 2.0
"""Clock differences below this are ignored, because they are within the latency of a batch."""
_MAX_POINTS = 64
"""Upper bound on reports kept per job for display; when it is reached every other one is dropped."""

FindJob = Callable[[str], tuple[KubeJob, PodRow] | None]
"""Returns the job of a pod, by the pod's uid."""


class ProgressColumns(NamedTuple):
    """Columns of a snapshot, one element per job."""

    remaining: Floats
    growth: Ints
    growth_rate: Floats
    growth_since: Floats
    curve: Ints
    restart_seconds: Floats


class JobProgressView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of one job, for statuses and commands."""

    step: int | None = None
    total: int | None = None
    metric: str = ""
    value: float | None = None
    growth: str = "unknown"
    eta_seconds: float | None = None
    """Predicted time to the last step at the recent speed, counted from the last report."""
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None
    reported_at: float | None = None

    @property
    def percent(self) -> int | None:
        if self.step is None or not self.total:
            return None
        return min(100, 100 * self.step // self.total)


class Point(NamedTuple):
    """One report in the history of a job."""

    at: float
    step: int | None
    total: int | None
    value: float | None


@dataclass
class _JobProgress:
    """Progress of one job, and the pod that reports for it."""

    job: KubeJob
    state: ProgressState
    worker: ReplicaSpec
    """Replica type whose count determines the speed."""
    uid: str = ""
    rank: tuple[int, str] = (0, "")
    attempt: int = -1
    last_report_at: float = -NEVER
    has_reported: bool = False
    """True after the first report of this attempt, from which the restart cost was learned."""
    has_reported_step: bool = False
    """True after the first report of this attempt with a step, which shows whether the job resumed."""
    goes_back: bool = False
    """True once a step was below the one before it in the same attempt: its steps do not show where it resumes."""
    cpu_seconds: float = 0.0
    points: list[Point] = field(default_factory=list)


class Progress:
    """Progress of all jobs of a cluster. Not thread-safe."""

    def __init__(self, rule: GrowthRule | None = None) -> None:
        self._training = ProgressTracker(LearnedCurves(), rule)
        self._jobs: dict[int, _JobProgress] = {}
        self._rows: dict[int, int] = {}
        """Column index of each job."""
        self._by_category: dict[str, set[int]] = {}
        """Keys of the jobs of each category."""
        self._table = _Table()
        self._last_report_at: dict[str, dict[str, float]] = {}
        """Time of the last report by pod uid and source, on the node's clock."""
        self._skew: dict[str, float] = {}
        """Seconds by which each node's clock is behind the operator's."""
        self._restart_seconds: float | None = None
        self._broken: list[tuple[int, float]] = []
        self.memory = secrets.token_hex(8)
        """Random session id. A monitor that knows another one sends all its reports again."""

    # Jobs.

    def follow(self, job: KubeJob) -> None:
        """Track a job that has not ended; its persisted progress counts until the first report."""
        spec = job.parsed_job.spec
        known = self._jobs.get(job.key)
        if known is not None:
            known.job, known.worker = job, spec.worker
            return
        category = category_of(spec.name, spec.category)
        state = self._training.follow(job.key, spec.progress, category)
        persisted = job.persisted
        state.step, state.total, state.value = persisted.step, persisted.total or state.total, persisted.value
        self._jobs[job.key], self._rows[job.key] = _JobProgress(job, state, spec.worker), self._table.take_row()
        self._by_category.setdefault(category, set()).add(job.key)
        self._refresh(job.key)

    def forget(self, key: int, is_complete: bool = False) -> None:
        """Stop tracking a job; the forecast errors of a completed one are kept."""
        progress = self._jobs.pop(key, None)
        if progress is None:
            return
        self._training.forget(key, is_complete)
        self._table.free_row(self._rows.pop(key))
        alike = self._by_category[progress.state.category]
        alike.discard(key)
        if not alike:
            del self._by_category[progress.state.category]

    def forget_pod(self, uid: str) -> None:
        self._last_report_at.pop(uid, None)

    # Reports.

    def take(self, batches: Iterable[Batch], find: FindJob, now: float) -> set[int]:
        """Process batches and update persisted state; return the keys of jobs that rules may now decide on."""
        by_job: dict[int, list[ProgressReport]] = {}
        for batch in batches:
            if batch.memory != self.memory:
                continue  # its monitor sends it again, in order
            ahead = self._ahead(batch, now)
            for pod in batch.pods:
                found = find(pod.uid)
                if found is not None and found[0].key in self._jobs:
                    if pod.saves_on_request:
                        found[0].persisted.note_evidence(SaveEvidence.REGISTERED)
                    reports = [_to_operator_clock(report, ahead, now) for report in self._fresh(pod)]
                    self._add_reports(*found, reports, now, by_job)
        heard = []
        for key, reports in by_job.items():
            reports.sort(key=lambda each: each.at)
            heard.append((key, reports, self._pace(self._jobs[key], reports)))
        return self._learn(heard)

    def _ahead(self, batch: Batch, now: float) -> float:
        """Return the seconds to add to the times of a node."""
        seen = now - batch.sent_at if math.isfinite(batch.sent_at) else 0.0
        known = self._skew.setdefault(batch.node, seen)
        if abs(seen - known) > _SKEW_SECONDS:
            known = self._skew[batch.node] = seen
        return known if abs(known) > _SKEW_SECONDS else 0.0

    def _fresh(self, pod: PodReports) -> list[SourceReport]:
        """Drop reports that were processed before: monitors repeat them after a restart or an unknown result."""
        heard = self._last_report_at.setdefault(pod.uid, {})
        before = dict(heard)
        fresh = [r for r in pod.reports if math.isfinite(r.at) and r.at > before.get(r.source, -NEVER)]
        for report in fresh:
            heard[report.source] = max(heard.get(report.source, -NEVER), report.at)
        return fresh

    def _add_reports(
        self,
        job: KubeJob,
        pod: PodRow,
        reports: list[ProgressReport],
        now: float,
        by_job: dict[int, list[ProgressReport]],
    ) -> None:
        progress, persisted = self._jobs[job.key], job.persisted
        saved = max((each.at for each in reports if each.saved), default=0.0)
        persisted.saved_at = max(persisted.saved_at, saved)
        if saved:
            persisted.note_evidence(SaveEvidence.SAVED)
        if not reports or pod.attempt < persisted.attempt or not self._is_reporter(progress, pod, now):
            return
        self._learn_restart(progress, reports)
        self._check_resumption(progress, reports)
        by_job.setdefault(job.key, []).extend(reports)

    def _is_reporter(self, progress: _JobProgress, pod: PodRow, now: float) -> bool:
        rank = (pod.index, pod.type)
        is_new = pod.attempt != progress.attempt
        if (
            pod.uid != progress.uid
            and not is_new
            and rank >= progress.rank
            and now - progress.last_report_at <= _SILENT_SECONDS
        ):
            return False
        if is_new:
            progress.has_reported = progress.has_reported_step = False
        if pod.uid != progress.uid:
            progress.cpu_seconds = 0.0
        progress.uid, progress.rank, progress.attempt, progress.last_report_at = pod.uid, rank, pod.attempt, now
        return True

    def _learn_restart(self, progress: _JobProgress, reports: Sequence[ProgressReport]) -> None:
        """Learn the restart cost of a job: the time from its start to its first report."""
        persisted = progress.job.persisted
        started = persisted.started_at
        if progress.has_reported or started is None:
            return
        first = next((each.at for each in reports if each.at > started), None)
        if first is None:
            return
        progress.has_reported = True
        if persisted.first_started_at is not None and started > persisted.first_started_at:
            self._training.learned_curves.add_restart(progress.state.category, first - started)
            self._restart_seconds = None
            for key in self._by_category[progress.state.category]:
                self._refresh(key)

    def _check_resumption(self, progress: _JobProgress, reports: Sequence[ProgressReport]) -> None:
        """Compare the first step of an attempt with what the job should have saved when it was stopped."""
        steps = [each.step for each in reports if each.step is not None]
        if not steps:
            return
        progress.goes_back = progress.goes_back or steps != sorted(steps)
        if not progress.has_reported_step:
            progress.has_reported_step = True
            if progress.goes_back:
                progress.job.persisted.resume_step = -1
            lost = progress.job.persisted.note_first_step(steps[0])
            if lost is not None:
                self._broken.append((progress.job.key, lost))
        elif progress.state.step is not None and steps[0] < progress.state.step:
            progress.goes_back = True

    def pop_broken(self) -> list[tuple[int, float]]:
        """Return the jobs found since the last call that began again from nothing though they had said that they can
        save, with the seconds of work that each has lost."""
        found, self._broken = self._broken, []
        return found

    def _pace(self, progress: _JobProgress, reports: Sequence[ProgressReport]) -> SpeedSample:
        """Return the speed sample at the last report. A single pod without devices shares its node with others, so its
        CPU time counts; otherwise wall-clock time does."""
        job, persisted, worker = progress.job, progress.job.persisted, progress.worker
        workers = max(1, _running(job, worker.type))
        progress.cpu_seconds = max([progress.cpu_seconds, *(each.cpu_seconds for each in reports)])
        if progress.cpu_seconds and workers == 1 and not job.parsed_job.shape.devices:
            return SpeedSample(progress.attempt, workers, progress.cpu_seconds / max(1, -(-worker.cpus // MILLI)))
        started = persisted.started_at if persisted.started_at is not None else reports[-1].at
        return SpeedSample(progress.attempt, workers, persisted.executed + max(0.0, reports[-1].at - started))

    def _learn(self, heard: Sequence[tuple[int, list[ProgressReport], SpeedSample]]) -> set[int]:
        learned = self._training.learned_curves
        categories = {self._jobs[key].state.category for key, _, _ in heard}
        before = {category: (learned.row(category), learned.step_seconds(category)) for category in categories}
        news = self._training.add_reports(heard)
        changed = {key for key, _, _ in heard}
        for category, known in before.items():
            if known != (learned.row(category), learned.step_seconds(category)):
                changed |= self._by_category[category]
        for key, reports, _ in heard:
            self._persist(self._jobs[key], reports)
        for key in changed:
            self._refresh(key)
        return news

    def _persist(self, progress: _JobProgress, reports: Sequence[ProgressReport]) -> None:
        state, persisted = progress.state, progress.job.persisted
        persisted.step, persisted.total, persisted.metric, persisted.value = (
            state.step,
            state.total,
            state.metric,
            state.value,
        )
        progress.points += [Point(each.at, each.step, each.total, each.metrics.get(state.metric)) for each in reports]
        while len(progress.points) > _MAX_POINTS:
            progress.points = progress.points[:-1:2] + progress.points[-1:]

    def _refresh(self, key: int) -> None:
        state, training, mean_seconds = self._jobs[key].state, self._training, self.restart_seconds
        self._table.set(
            self._rows[key],
            training.remaining(state),
            training.growth_of(state),
            state.rate,
            state.growth_since,
            training.learned_curves.row(state.category),
            restart_seconds([training.learned_curves.record_of(state.category)], Prior(restart_seconds=mean_seconds)),
        )

    # Results.

    def columns(self, keys: Sequence[int]) -> ProgressColumns:
        """Return one element per job; untracked jobs have unknown progress."""
        return self._table.of(list(map(self._rows.get, keys, repeat(0))))

    @property
    def curves(self) -> Curves:
        """Speed-up curves that `columns` refers to."""
        return self._training.learned_curves.table.curves

    @property
    def restart_seconds(self) -> float:
        """Mean cost of a restart, over all categories."""
        if self._restart_seconds is None:
            self._restart_seconds = restart_seconds(self._training.learned_curves.learned.records)
        return self._restart_seconds

    def restart_seconds_of(self, key: int) -> float:
        """Return the learned cost of a restart of a job; the mean of all categories where its own is unknown."""
        found = self._table.of([self._rows.get(key, 0)]).restart_seconds.item()
        return self.restart_seconds if math.isnan(found) else found

    def view(self, key: int, has_eta: bool = True) -> JobProgressView:
        """Return the progress of a job; `has_eta=False` skips the ETA, which costs more than all the rest."""
        progress = self._jobs.get(key)
        if progress is None:
            return JobProgressView()
        state = progress.state
        band = self._training.eta(state) if has_eta else None
        growth = "unknown" if state.value is None else self._training.growth_of(state).name.lower()
        heard = None if state.reported_at == -NEVER else state.reported_at
        metric = state.metric or progress.job.persisted.metric
        return JobProgressView(state.step, state.total, metric, state.value, growth, *_seconds(band), reported_at=heard)

    def steps_left(self, key: int) -> float:
        """Return the remaining steps; NaN if the total is unknown."""
        progress = self._jobs.get(key)
        return math.nan if progress is None else progress.state.steps_left

    def history(self, key: int) -> list[Point]:
        """Return a sample of its reports, oldest first, with the newest."""
        progress = self._jobs.get(key)
        return [] if progress is None else list(progress.points)

    @property
    def learned_curves(self) -> LearnedCurves:
        return self._training.learned_curves

    def recall(self, known: Iterable[CategoryRecord]) -> None:
        """Merge the learned curves of a previous leader."""
        self._training.learned_curves.recall(known)
        self._restart_seconds = None
        for key in self._jobs:
            self._refresh(key)


class _Table:
    """Columns of all jobs; row 0 stands for unknown progress."""

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
            all_rows.restart_seconds[at],
        )


def _unknown(rows: int) -> ProgressColumns:
    return ProgressColumns(
        np.full(rows, np.nan),
        np.full(rows, int(Growth.PROGRESSING), dtype=np.int64),
        np.full(rows, np.nan),
        np.full(rows, -NEVER),
        np.full(rows, LINEAR, dtype=np.int64),
        np.full(rows, np.nan),
    )


def _to_operator_clock(report: SourceReport, ahead: float, now: float) -> ProgressReport:
    """Convert a report to the operator's clock; a time in the future becomes now."""
    at = min(report.at + ahead, now)
    return ProgressReport(at, report.step, report.total, report.metrics, report.saved, report.cpu_seconds)


def _running(job: KubeJob, worker: str) -> int:
    return sum(pod.type == worker and pod.state is PodState.RUNNING for pod in job.pods.values())


def _seconds(band: Band | None) -> tuple[float | None, float | None, float | None]:
    """Return middle, low and high; None for infinite values."""
    if band is None:
        return None, None, None
    middle, low, high = (value if math.isfinite(value) else None for value in (band.middle, band.low, band.high))
    return middle, low, high
