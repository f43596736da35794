"""Simulated cluster whose rules know only what its jobs have reported: `--knowledge learned`.

Jobs progress by the truth. Snapshots carry curves, remaining work and restart cost learned during the run from what a
real scheduler sees: the number of whole steps a job has reported, and when. A run of a job (from one start or resize to
the next) reports after its first step, whenever its steps have doubled, and at its end, so reports cost a few heap
operations per run, independent of the number of decisions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.job_table import Array, ComputedColumn
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import Assignment, Ints, Nodes
from sterna.model.learned import CategoryRecord, CurveRows, Learned, Prior, fit_curve, restart_seconds
from sterna.model.plan import ActionKind, kind_of
from sterna.model.snapshot import JobKey, Snapshot
from sterna.model.speedup import LINEAR, Floats

STEPS_OF_A_JOB = 100.0
"""Steps of the mean job of a category where the workload does not give them."""

_NEWS = 1.1
"""Growth factor of a category's steps after which it is fitted again; a new size also triggers a fit."""


class CategoryEstimates:
    """Estimates per category, by number, and the measurements behind them."""

    def __init__(self, categories: Sequence[str], most: int, known: Learned) -> None:
        self._records = [known.of(category) for category in categories]
        self._restart_seconds = restart_seconds(self._records)
        self._restarts = 1 + sum(record.restarts for record in self._records)
        self._fitted_on = [(0.0, 0)] * len(categories)
        """Steps and number of sizes behind the current fit of each category."""
        self._is_known = np.zeros(len(categories), dtype=np.bool_)
        self.step_seconds: Floats = np.full(len(categories), Prior().step_seconds)
        """Seconds of a step at one worker; for a category without reports, the mean of the others."""
        self.row: Ints = np.full(len(categories), LINEAR)
        """Row of each category in `table`."""
        self.table = CurveRows(most)
        self._ended_steps = np.zeros(len(categories))
        self._ended_jobs = np.zeros(len(categories))
        self._news = {number for number, record in enumerate(self._records) if record.paces}

    @property
    def learned(self) -> Learned:
        """All measurements, to seed another run."""
        seen = [record for record in self._records if record.paces or record.restarts]
        return Learned(tuple(sorted(seen, key=lambda record: record.category)))

    @property
    def restart_seconds(self) -> float:
        return self._restart_seconds

    def add_steps(self, number: int, workers: int, steps: float, seconds: float) -> None:
        self._records[number] = self._records[number].with_steps(workers, steps, seconds)
        self._news.add(number)

    def add_restart(self, number: int, seconds: float) -> None:
        self._records[number] = self._records[number].with_restart(seconds)
        self._restarts += 1
        self._restart_seconds += (seconds - self._restart_seconds) / self._restarts

    def add_ended_job(self, number: int, steps: float) -> None:
        self._ended_steps[number] += steps
        self._ended_jobs[number] += 1

    @property
    def job_seconds(self) -> Floats:
        """Expected work of a job by category, before it has begun: the mean of those that ended; for a category without
        one, the mean of the others, or `STEPS_OF_A_JOB` steps if no job has ended."""
        has_ended = self._ended_jobs > 0
        mean = self._ended_steps / np.maximum(self._ended_jobs, 1) * self.step_seconds
        if has_ended.any():
            return np.where(has_ended, mean, mean[has_ended].mean())
        return STEPS_OF_A_JOB * self.step_seconds

    def refit(self) -> None:
        """Fit the categories whose new measurements warrant it."""
        if not self._news:
            return
        for number in sorted(self._news):
            record = self._records[number]
            steps, sizes = self._fitted_on[number]
            if len(record.paces) > sizes or record.steps >= _NEWS * steps:
                self._fitted_on[number] = (record.steps, len(record.paces))
                self._fit(number, record)
        self._news.clear()

    def _fit(self, number: int, record: CategoryRecord) -> None:
        fit = fit_curve(record)
        self.row[number] = self.table.row(fit)
        self.step_seconds[number] = fit.step_seconds
        self._is_known[number] = True
        others = math.exp(float(np.log(self.step_seconds[self._is_known]).mean()))
        self.step_seconds[~self._is_known] = others


class LearningBackend(SimulatedBackend):
    """Simulated backend whose snapshots carry learned curves, remaining work and restart cost."""

    def __init__(
        self,
        workload: Workload,
        nodes: Nodes,
        config: SimulationConfig | None = None,
        *,
        known: Learned | None = None,
    ) -> None:
        categories = workload.category or ("",) * len(workload)
        numbers = {category: number for number, category in enumerate(dict.fromkeys(categories))}
        self._number = [numbers[category] for category in categories]
        steps = _total_steps(workload, np.array(self._number, dtype=np.int64))
        step_seconds: Floats = workload.work / steps
        self._steps: list[float] = steps.tolist()
        self._step_seconds: list[float] = step_seconds.tolist()
        """True seconds of each job's step at one worker."""
        self._reported_steps = [0.0] * len(workload)
        """Steps reported in the current run of each job."""
        self._owes_restart = [False] * len(workload)
        """The job restarted and has not reported yet how long that took."""
        self._reports: list[tuple[float, int, int, float]] = []
        """Heap of (time, version of the job, job, steps of its run by then)."""
        super().__init__(workload, nodes, config)
        self._estimates = CategoryEstimates(tuple(numbers), self.reach, known or Learned())
        columns = self.table.sources
        columns["category"] = np.array(self._number, dtype=np.int64)
        columns["steps"], columns["step_seconds"] = steps, step_seconds
        unplanned = workload.unplanned_work
        columns["planned_steps"] = steps if unplanned is None else steps + unplanned / step_seconds
        self.lines["curve"] = _EstimatedCurve(self)
        self.lines["remaining"] = _EstimatedWork(self, self.states.remaining_line)

    @property
    def estimates(self) -> CategoryEstimates:
        return self._estimates

    def observe(self) -> Snapshot:
        self._process_reports()
        estimates = self._estimates
        estimates.refit()
        return replace(super().observe(), curves=estimates.table.curves, restart_seconds=estimates.restart_seconds)

    def _process_reports(self) -> None:
        """Process the reports that are due."""
        reports, now = self._reports, self.now
        while reports and reports[0][0] <= now:
            due, version, row, steps = heapq.heappop(reports)
            if self.states.version[row] != version:
                continue
            self._report(row, steps)
            since = self.states.progress_since[row]
            heapq.heappush(reports, (since + 2 * (due - since), version, row, 2 * steps))

    def _report(self, row: int, steps: float) -> None:
        """Report that the current run of a job has completed `steps` steps."""
        number = self._number[row]
        if self._owes_restart[row]:
            self._owes_restart[row] = False
            self._estimates.add_restart(number, self.states.progress_since[row] - self.states.assigned_at[row])
        more = steps - self._reported_steps[row]
        if more > 0:
            self._reported_steps[row] = steps
            seconds = more * self._step_seconds[row] / self.states.rate[row]
            self._estimates.add_steps(number, int(self.states.workers[row]), more, seconds)

    def _steps_of_run(self, row: int) -> float:
        """Return the steps of the current run, the unfinished one as a fraction."""
        return (self.now - self.states.progress_since[row]) * self.states.rate[row] / self._step_seconds[row]

    def _end(self, row: int) -> None:
        self._report(row, self._steps_of_run(row))
        self._estimates.add_ended_job(self._number[row], self._steps[row])
        super()._end(row)

    def _account(self, row: int, loses: bool = False) -> None:
        if self.now > self.states.progress_since[row]:
            self._report(row, math.floor(self._steps_of_run(row)))
        super()._account(row, loses)

    def _assign(self, key: JobKey, place: int, before: Assignment, after: Assignment, pause_seconds: float) -> None:
        super()._assign(key, place, before, after, pause_seconds)
        is_resize = kind_of(before, after) in (ActionKind.SHRINK, ActionKind.GROW)
        self._owes_restart[key] = not is_resize or self.costs.rescale_seconds is None
        self._reported_steps[key] = 0.0
        first = self.states.progress_since[key] + self._step_seconds[key] / self.states.rate[key]
        heapq.heappush(self._reports, (first, self.states.version[key], key, 1.0))


class _EstimatedCurve:
    """Estimated curve of each active job's category."""

    def __init__(self, backend: LearningBackend) -> None:
        self._backend = backend

    def at(self, now: float) -> Array:
        row = self._backend.estimates.row.take(self._backend.table.read("category"))
        row.flags.writeable = False
        return row


class _EstimatedWork:
    """Unreported steps of each active job times the estimated seconds of a step at one worker.

    A job states its total when it begins; until then its work is that of the jobs of its category that ended.
    """

    def __init__(self, backend: LearningBackend, truth: ComputedColumn) -> None:
        self._backend, self._truth = backend, truth

    def at(self, now: float) -> Array:
        table = self._backend.table
        steps = table.read("steps")
        reported = np.floor(steps - self._truth.at(now) / table.read("step_seconds"))
        category, estimates = table.read("category"), self._backend.estimates
        stated = (table.read("planned_steps") - reported) * estimates.step_seconds.take(category)
        has_begun = table.read("first_start") <= now
        left: Floats = np.where(has_begun, stated, estimates.job_seconds.take(category))
        left.flags.writeable = False
        return left


def _total_steps(workload: Workload, number: Ints) -> Floats:
    """Return the total steps of each job."""
    if workload.steps is not None:
        return workload.steps
    mean_work = np.bincount(number, workload.work) / np.bincount(number)
    return STEPS_OF_A_JOB * workload.work / mean_work[number]
