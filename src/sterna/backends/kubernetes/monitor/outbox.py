"""What waits to be sent to the operator, and what was sent before, in case another operator asks.

Reports come faster than anybody needs them, so they are thinned: of a young pod one a second goes out, of an old one
every ten, and of all pods of a gang but the first rarely any. A report that says that a checkpoint is complete is never
held back. What was sent is remembered thinly, so that an operator that has just come up hears the whole course.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch, PodReports
from sterna.progress.names import is_quality
from sterna.progress.report import Report

_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0
_AGEING = 60.0
"""A pod that has been heard for so many seconds may wait one second longer, and so on."""
_OTHERS_SECONDS = 10.0
"""Between two reports of a pod that is not the first of its gang."""
_KEPT = 256
"""Reports of a pod that are remembered; when they are full every other one goes."""
_WAITING = 512
"""Reports of a pod that wait while no operator answers; when they are full every other one goes."""
_ENDED_SECONDS = 600.0
"""How long pods that are gone are remembered."""
_REPORT_BYTES = 400
"""What a report usually takes on its way, generously."""
_MOST_METRICS, _LONGEST_NAME = 16, 64
"""Of one report, whatever a training may call its numbers."""


@dataclass
class _Course:
    """The reports of one pod."""

    uid: str
    namespace: str
    name: str
    is_first: bool
    since: float | None = None
    """When it was first heard of, by its own reports."""
    held: Report | None = None
    """Too soon after the last; the next is laid over it."""
    last_at: float = -1e18
    waiting: list[Report] = field(default_factory=list)
    sent: list[Report] = field(default_factory=list)
    gone_at: float | None = None
    is_urgent: bool = False
    """Something waits that somebody may wait for: a checkpoint, an end."""

    def least_seconds(self, at: float) -> float:
        if not self.is_first:
            return _OTHERS_SECONDS
        return min(max((at - (self.since or at)) / _AGEING, _LEAST_SECONDS), _MOST_SECONDS)

    def take(self, report: Report) -> None:
        if self.since is None:
            self.since = report.at
        whole = report if self.held is None else _laid_over(self.held, report)
        is_end = report.step is not None and report.step == report.total
        if report.saved or is_end or report.at - self.last_at >= self.least_seconds(report.at):
            self.waiting.append(whole)
            self.held, self.last_at = None, report.at
            self.waiting = _thinned(self.waiting, _WAITING)
            self.is_urgent = self.is_urgent or report.saved or is_end
        else:
            self.held = whole

    def let_go(self) -> None:
        """Nothing more comes that the held one could wait for."""
        if self.held is not None:
            self.waiting.append(self.held)
            self.last_at, self.held = self.held.at, None


class Outbox:
    """Reports of all pods of a node, on their way to whoever is the operator."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._courses: dict[str, _Course] = {}
        self._memory = ""
        self._sending: list[tuple[_Course, list[Report]]] = []

    def take(self, uid: str, namespace: str, name: str, is_first: bool, reports: Iterable[Report]) -> None:
        """What a pod has told."""
        course = self._courses.get(uid)
        if course is None:
            course = self._courses[uid] = _Course(uid, namespace, name, is_first)
        for report in reports:
            course.take(_bounded(report))

    def end(self, uid: str, now: float) -> None:
        """This pod tells nothing more; what was held back of it goes out."""
        course = self._courses.get(uid)
        if course is not None and course.gone_at is None:
            course.let_go()
            course.gone_at, course.is_urgent = now, bool(course.waiting)

    def is_due(self, now: float, last_at: float) -> bool:
        """Is there something to send, if the last batch went out then? The older the pods, the rarer."""
        wait_seconds = _MOST_SECONDS
        for course in self._courses.values():
            if course.held is not None and now - course.held.at >= course.least_seconds(now):
                course.let_go()
            if course.waiting:
                wait_seconds = min(wait_seconds, _LEAST_SECONDS if course.is_urgent else course.least_seconds(now))
        return self.has_news and now - last_at >= wait_seconds

    @property
    def has_news(self) -> bool:
        return any(course.waiting for course in self._courses.values())

    def batch(self, now: float) -> Batch | None:
        """What is to be sent now, no more than one request holds; None if there is nothing."""
        self._forget(now)
        self._sending, room = [], MOST_BYTES // _REPORT_BYTES
        for course in self._courses.values():
            reports = course.waiting[:room]
            if reports:
                self._sending.append((course, reports))
                room -= len(reports)
        if not self._sending:
            return None
        pods = [PodReports(course.uid, course.namespace, course.name, reports) for course, reports in self._sending]
        return Batch(self._node, now, self._memory, pods)

    def arrived(self) -> None:
        """The last batch was taken."""
        for course, reports in self._sending:
            del course.waiting[: len(reports)]
            course.sent = _thinned([*course.sent, *reports], _KEPT)
            course.is_urgent = False
        self._sending = []

    def meet(self, memory: str) -> None:
        """The operator remembers nothing of what was sent so far: all of it goes out again, the oldest first."""
        self._memory, self._sending = memory, []
        for course in self._courses.values():
            course.waiting, course.sent = [*course.sent, *course.waiting], []

    def _forget(self, now: float) -> None:
        gone = [
            uid
            for uid, course in self._courses.items()
            if course.gone_at is not None and now - course.gone_at > _ENDED_SECONDS
        ]
        for uid in gone:
            del self._courses[uid]


def _bounded(report: Report) -> Report:
    """Without more numbers than anybody looks at; those that say how good a model is come first."""
    metrics = report.metrics
    if len(metrics) <= _MOST_METRICS and all(len(name) <= _LONGEST_NAME for name in metrics):
        return report
    short = sorted((name for name in metrics if len(name) <= _LONGEST_NAME), key=lambda name: not is_quality(name))
    return msgspec.structs.replace(report, metrics={name: metrics[name] for name in short[:_MOST_METRICS]})


def _laid_over(older: Report, newer: Report) -> Report:
    """The newer one, with what only the older has measured."""
    return msgspec.structs.replace(
        newer,
        step=older.step if newer.step is None else newer.step,
        total=older.total if newer.total is None else newer.total,
        metrics=older.metrics | newer.metrics if len(older.metrics) < _MOST_METRICS else newer.metrics,
        cpu_seconds=max(older.cpu_seconds, newer.cpu_seconds),
    )


def _thinned(reports: list[Report], most: int) -> list[Report]:
    """Every other one goes when there are too many; the last stays."""
    while len(reports) > most:
        reports = [*reports[:-1:2], reports[-1]]
    return reports
