"""A simulated world whose rules know only what its jobs have shown: `--knowledge learned`.

The truth moves the jobs. What rules read of curves, remaining work and restart cost is learned while the world runs,
from what a scheduler would see: how many whole steps a job has reported, and when. A stretch of training is heard of
after its first step, again whenever its steps have doubled, and when it ends; so listening costs a few heap operations
for each stretch, however often anybody decides.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.job_table import Array, Reading
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import Assignment, Ints, Nodes
from sterna.model.learned import CurveRows, Learned, Lesson, Prior, fitted, restart_seconds
from sterna.model.plan import ActionKind, kind_of
from sterna.model.snapshot import JobKey, Snapshot
from sterna.model.speedup import LINEAR, Floats

STEPS_OF_A_JOB = 100.0
"""Of the mean job of a category, where nobody says."""

_NEWS = 1.1
"""A category is fitted again when it has shown so many times the steps of its last fit, or another size."""


class Beliefs:
    """What is believed of each category, numbered, and the lessons behind it."""

    def __init__(self, categories: Sequence[str], most: int, known: Learned) -> None:
        self._lessons = [known.of(category) for category in categories]
        self._restart_seconds = restart_seconds(self._lessons)
        self._restarts = 1 + sum(lesson.restarts for lesson in self._lessons)
        self._fitted_on = [(0.0, 0)] * len(categories)
        """Steps and sizes behind the present fit of each."""
        self._is_known = np.zeros(len(categories), dtype=np.bool_)
        self.step_seconds: Floats = np.full(len(categories), Prior().step_seconds)
        """At one worker; of a category that nobody has seen, the mean of the others."""
        self.row: Ints = np.full(len(categories), LINEAR)
        """Each category's row of `curves`."""
        self.table = CurveRows(most)
        self._news = {number for number, lesson in enumerate(self._lessons) if lesson.paces}

    @property
    def learned(self) -> Learned:
        """All that was seen, to be kept."""
        seen = [lesson for lesson in self._lessons if lesson.paces or lesson.restarts]
        return Learned(tuple(sorted(seen, key=lambda lesson: lesson.category)))

    @property
    def restart_seconds(self) -> float:
        return self._restart_seconds

    def hear_of_steps(self, number: int, workers: int, steps: float, seconds: float) -> None:
        self._lessons[number] = self._lessons[number].with_steps(workers, steps, seconds)
        self._news.add(number)

    def hear_of_restart(self, number: int, seconds: float) -> None:
        self._lessons[number] = self._lessons[number].with_restart(seconds)
        self._restarts += 1
        self._restart_seconds += (seconds - self._restart_seconds) / self._restarts

    def think(self) -> None:
        """Fit again what has news worth it."""
        if not self._news:
            return
        for number in sorted(self._news):
            lesson = self._lessons[number]
            steps, sizes = self._fitted_on[number]
            if len(lesson.paces) > sizes or lesson.steps >= _NEWS * steps:
                self._fitted_on[number] = (lesson.steps, len(lesson.paces))
                self._believe(number, lesson)
        self._news.clear()

    def _believe(self, number: int, lesson: Lesson) -> None:
        fit = fitted(lesson)
        self.row[number] = self.table.row(fit)
        self.step_seconds[number] = fit.step_seconds
        self._is_known[number] = True
        others = math.exp(float(np.log(self.step_seconds[self._is_known]).mean()))
        self.step_seconds[~self._is_known] = others


class LearningBackend(SimulatedBackend):
    """The simulated world, with curves, remaining work and restart cost as they were learned in it so far."""

    def __init__(
        self,
        workload: Workload,
        nodes: Nodes,
        costs: Costs | None = None,
        faults: Sequence[Fault] = (),
        *,
        timeline: bool = False,
        known: Learned | None = None,
    ) -> None:
        categories = workload.category or ("",) * len(workload)
        numbers = {category: number for number, category in enumerate(dict.fromkeys(categories))}
        self._number = [numbers[category] for category in categories]
        steps = _steps(workload, np.array(self._number, dtype=np.int64))
        step_seconds: Floats = workload.work / steps
        self._step_seconds: list[float] = step_seconds.tolist()
        """The truth, of a job's step at one worker."""
        self._steps_told = [0.0] * len(workload)
        """Of the present stretch."""
        self._owes_restart = [False] * len(workload)
        """It was started again, and how long that took has not been told."""
        self._reports: list[tuple[float, int, int, float]] = []
        """When, version of the job, job, steps of its stretch by then."""
        super().__init__(workload, nodes, costs, faults, timeline=timeline)
        self._beliefs = Beliefs(tuple(numbers), self.reach, known or Learned())
        columns = self.table.books
        columns["category"] = np.array(self._number, dtype=np.int64)
        columns["steps"], columns["step_seconds"] = steps, step_seconds
        self.lines["curve"] = _BelievedCurve(self)
        self.lines["remaining"] = _BelievedWork(self, self.books.remaining)

    @property
    def beliefs(self) -> Beliefs:
        return self._beliefs

    def observe(self) -> Snapshot:
        self._listen()
        beliefs = self._beliefs
        beliefs.think()
        return replace(super().observe(), curves=beliefs.table.curves, restart_seconds=beliefs.restart_seconds)

    def _listen(self) -> None:
        """Take in the reports that were due until now."""
        reports, now = self._reports, self.now
        while reports and reports[0][0] <= now:
            due, version, row, steps = heapq.heappop(reports)
            if self.books.version[row] != version:
                continue
            self._tell(row, steps)
            since = self.books.since[row]
            heapq.heappush(reports, (since + 2 * (due - since), version, row, 2 * steps))

    def _tell(self, row: int, steps: float) -> None:
        """The present stretch has come to so many steps."""
        number = self._number[row]
        if self._owes_restart[row]:
            self._owes_restart[row] = False
            self._beliefs.hear_of_restart(number, self.books.since[row] - self.books.held[row])
        more = steps - self._steps_told[row]
        if more > 0:
            self._steps_told[row] = steps
            seconds = more * self._step_seconds[row] / self.books.rate[row]
            self._beliefs.hear_of_steps(number, int(self.books.workers[row]), more, seconds)

    def _done(self, row: int) -> float:
        """Steps of the present stretch, the one under way in part."""
        return (self.now - self.books.since[row]) * self.books.rate[row] / self._step_seconds[row]

    def _end(self, row: int) -> None:
        self._tell(row, self._done(row))
        super()._end(row)

    def _settle(self, row: int, lost_seconds: float = 0.0) -> None:
        if self.now > self.books.since[row]:
            self._tell(row, math.floor(self._done(row)))
        super()._settle(row, lost_seconds)

    def _seat(self, key: JobKey, place: int, before: Assignment, after: Assignment, pause_seconds: float) -> None:
        super()._seat(key, place, before, after, pause_seconds)
        is_resize = kind_of(before, after) in (ActionKind.SHRINK, ActionKind.GROW)
        self._owes_restart[key] = not is_resize or self.costs.rescale_seconds is None
        self._steps_told[key] = 0.0
        first = self.books.since[key] + self._step_seconds[key] / self.books.rate[key]
        heapq.heappush(self._reports, (first, self.books.version[key], key, 1.0))


class _BelievedCurve:
    """The curve that each active job's category is believed to have."""

    def __init__(self, world: LearningBackend) -> None:
        self._world = world

    def at(self, now: float) -> Array:
        row = self._world.beliefs.row.take(self._world.table.read("category"))
        row.flags.writeable = False
        return row


class _BelievedWork:
    """Steps that each active job has not reported yet, times what a step is believed to take at one worker."""

    def __init__(self, world: LearningBackend, truth: Reading) -> None:
        self._world, self._truth = world, truth

    def at(self, now: float) -> Array:
        table = self._world.table
        steps = table.read("steps")
        reported = np.floor(steps - self._truth.at(now) / table.read("step_seconds"))
        left: Floats = (steps - reported) * self._world.beliefs.step_seconds.take(table.read("category"))
        left.flags.writeable = False
        return left


def _steps(workload: Workload, number: Ints) -> Floats:
    """How many each job has in all."""
    if workload.steps is not None:
        return workload.steps
    mean_work = np.bincount(number, workload.work) / np.bincount(number)
    return STEPS_OF_A_JOB * workload.work / mean_work[number]
