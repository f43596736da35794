"""Queue of reports for the operator, and a sample of those already sent, for an operator that starts later.

Reports are rate-limited: one a second for a new pod, one every ten seconds for an old one, and few for pods that are
not the first of their gang. A report of a complete checkpoint is sent at once. Sent reports are kept, thinned out, so
that a new operator gets the whole history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch, PodReports
from sterna.progress.names import is_quality
from sterna.progress.report import SourceReport

_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0
_AGEING = 60.0
"""Seconds of age after which the interval of a pod grows by one second."""
_OTHERS_SECONDS = 10.0
"""Interval between two reports of a pod that is not the first of its gang."""
_KEPT = 256
"""Sent reports to keep per pod; beyond that every other one is dropped."""
_WAITING = 512
"""Unsent reports to keep per pod while no operator answers; beyond that every other one is dropped."""
_ENDED_SECONDS = 600.0
"""Time for which deleted pods are kept."""
_REPORT_BYTES = 400
"""Generous estimate of the size of an encoded report."""
_MOST_METRICS, _LONGEST_NAME = 16, 64
"""Limits of one report."""


@dataclass
class _PodQueue:
    """Reports of one pod."""

    uid: str
    namespace: str
    name: str
    is_first: bool
    since: float | None = None
    """Time of its first report."""
    held: SourceReport | None = None
    """A report too soon after the last one; the next is merged into it."""
    last_at: float = -1e18
    waiting: list[SourceReport] = field(default_factory=list)
    sent: list[SourceReport] = field(default_factory=list)
    gone_at: float | None = None
    saves_on_request: bool = False
    is_unannounced: bool = False
    """`saves_on_request` has become true and was not sent yet."""
    is_urgent: bool = False
    """An unsent report is about a checkpoint or the end of the job."""

    @property
    def has_news(self) -> bool:
        return bool(self.waiting) or self.is_unannounced

    def least_seconds(self, at: float) -> float:
        if not self.is_first:
            return _OTHERS_SECONDS
        return min(max((at - (self.since or at)) / _AGEING, _LEAST_SECONDS), _MOST_SECONDS)

    def take(self, report: SourceReport) -> None:
        if self.since is None:
            self.since = report.at
        whole = report if self.held is None else _merge_reports(self.held, report)
        is_end = report.step is not None and report.step == report.total
        if report.saved or is_end or report.at - self.last_at >= self.least_seconds(report.at):
            self.waiting.append(whole)
            self.held, self.last_at = None, report.at
            self.waiting = _thin_out(self.waiting, _WAITING)
            self.is_urgent = self.is_urgent or report.saved or is_end
        else:
            self.held = whole

    def flush_held(self) -> None:
        """Queue the held report: there will be no further one to merge."""
        if self.held is not None:
            self.waiting.append(self.held)
            self.last_at, self.held = self.held.at, None


class Outbox:
    """Reports of all pods of a node, for the current operator."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._queues: dict[str, _PodQueue] = {}
        self._memory = ""
        self._sending: list[tuple[_PodQueue, list[SourceReport]]] = []

    def take(
        self,
        uid: str,
        namespace: str,
        name: str,
        is_first: bool,
        reports: Iterable[SourceReport],
        saves_on_request: bool = False,
    ) -> None:
        """Queue reports of a pod; `saves_on_request` is sent with them and with all later ones."""
        queue = self._queues.get(uid)
        if queue is None:
            queue = self._queues[uid] = _PodQueue(uid, namespace, name, is_first)
        if saves_on_request and not queue.saves_on_request:
            queue.saves_on_request = queue.is_unannounced = True
        for report in reports:
            queue.take(_limit_metrics(report))

    def end(self, uid: str, now: float) -> None:
        """Mark a pod as ended, and queue its held report."""
        queue = self._queues.get(uid)
        if queue is not None and queue.gone_at is None:
            queue.flush_held()
            queue.gone_at, queue.is_urgent = now, bool(queue.waiting)

    def is_due(self, now: float, last_at: float) -> bool:
        """True if a batch is due, given the time of the last one. The interval grows with the age of the pods."""
        wait_seconds = _MOST_SECONDS
        for queue in self._queues.values():
            if queue.held is not None and now - queue.held.at >= queue.least_seconds(now):
                queue.flush_held()
            if queue.has_news:
                wait_seconds = min(wait_seconds, _LEAST_SECONDS if queue.is_urgent else queue.least_seconds(now))
        return self.has_news and now - last_at >= wait_seconds

    @property
    def has_news(self) -> bool:
        return any(queue.has_news for queue in self._queues.values())

    def batch(self, now: float) -> Batch | None:
        """Build the next batch, at most one request; None if there is nothing to send."""
        self._forget(now)
        self._sending, room = [], MOST_BYTES // _REPORT_BYTES
        for queue in self._queues.values():
            reports = queue.waiting[:room]
            if reports or queue.is_unannounced:
                self._sending.append((queue, reports))
                room -= len(reports)
        if not self._sending:
            return None
        pods = [
            PodReports(queue.uid, queue.namespace, queue.name, reports, queue.saves_on_request)
            for queue, reports in self._sending
        ]
        return Batch(self._node, now, self._memory, pods)

    def confirm_batch(self) -> None:
        """Mark the last batch as accepted."""
        for queue, reports in self._sending:
            del queue.waiting[: len(reports)]
            queue.sent = _thin_out([*queue.sent, *reports], _KEPT)
            queue.is_urgent = queue.is_unannounced = False
        self._sending = []

    def resend_to(self, memory: str) -> None:
        """Queue everything again, oldest first, for an operator that has none of it."""
        self._memory, self._sending = memory, []
        for queue in self._queues.values():
            queue.waiting, queue.sent = [*queue.sent, *queue.waiting], []
            queue.is_unannounced = queue.saves_on_request

    def _forget(self, now: float) -> None:
        gone = [
            uid
            for uid, queue in self._queues.items()
            if queue.gone_at is not None and now - queue.gone_at > _ENDED_SECONDS
        ]
        for uid in gone:
            del self._queues[uid]


def _limit_metrics(report: SourceReport) -> SourceReport:
    """The report with a bounded number of metrics, measures of quality first."""
    metrics = report.metrics
    if len(metrics) <= _MOST_METRICS and all(len(name) <= _LONGEST_NAME for name in metrics):
        return report
    short = sorted((name for name in metrics if len(name) <= _LONGEST_NAME), key=lambda name: not is_quality(name))
    return msgspec.structs.replace(report, metrics={name: metrics[name] for name in short[:_MOST_METRICS]})


def _merge_reports(older: SourceReport, newer: SourceReport) -> SourceReport:
    """The newer report, with metrics that only the older one has."""
    return msgspec.structs.replace(
        newer,
        step=older.step if newer.step is None else newer.step,
        total=older.total if newer.total is None else newer.total,
        metrics=older.metrics | newer.metrics if len(older.metrics) < _MOST_METRICS else newer.metrics,
        cpu_seconds=max(older.cpu_seconds, newer.cpu_seconds),
    )


def _thin_out(reports: list[SourceReport], most: int) -> list[SourceReport]:
    """Drop every other report while there are too many; keep the last."""
    while len(reports) > most:
        reports = [*reports[:-1:2], reports[-1]]
    return reports
