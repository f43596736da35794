"""The monitor of one node: reads the progress of its pods, sends it to the operator, and requests moves.

One thread polls at least once a second: deltas of the API server, samples that jobs have posted, files of each pod. A
failure to reach the operator is logged once and retried with back-off; training never waits for the monitor.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest
from sterna.backends.kubernetes.api.resources import Delta, DeltaKind
from sterna.backends.kubernetes.lifecycle.overload import THRESHOLD
from sterna.backends.kubernetes.monitor.convergence import CONTAINER_MIGRATION, ConvergenceDetector, MetricSample
from sterna.backends.kubernetes.monitor.host_paths import Roots
from sterna.backends.kubernetes.monitor.operator_client import OperatorClient
from sterna.backends.kubernetes.monitor.outbox import Outbox
from sterna.backends.kubernetes.monitor.pods import NodePod, progress_of
from sterna.backends.kubernetes.monitor.reader import PodReader
from sterna.backends.kubernetes.monitor.sample_server import Sample
from sterna.errors import Retry
from sterna.kinds.labels import INDEX_LABEL
from sterna.model.growth import GrowthRule
from sterna.progress.names import main_metric
from sterna.progress.report import SourceReport

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
_MOST_SAMPLES = 10_000
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 1.0, 30.0
_KUBEFLOW_INDEX = "training.kubeflow.org/replica-index"


class MoveScope(Enum):
    """Pods for which the monitor requests moves."""

    POSTED = "posted"
    """Pods that post their metric, as container-migration's do; for all others the operator decides by itself."""
    ALL = "all"
    """All pods that report a metric, as SpeCon's node agent does."""
    NONE = "none"


@dataclass(frozen=True)
class MonitorOptions:
    """Configuration of a monitor."""

    node: str
    roots: Roots = field(default_factory=Roots)
    move_scope: MoveScope = MoveScope.POSTED
    rule: GrowthRule = CONTAINER_MIGRATION
    threshold: float = THRESHOLD


@dataclass
class _Followed:
    """A pod of the node."""

    pod: NodePod
    reader: PodReader | None = None
    """None: it belongs to no job, or has ended."""


class Monitor:
    """State of a monitor: deltas and samples come in, `poll` does the rest."""

    def __init__(
        self,
        options: MonitorOptions,
        operator: OperatorClient,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options, self._operator, self._clock = options, operator, clock
        self._pods: dict[str, _Followed] = {}
        """By uid."""
        self._addresses: dict[str, str] = {}
        self._samples: deque[tuple[Sample, float]] = deque()
        self._outbox = Outbox(options.node)
        self._convergence = ConvergenceDetector(options.node, options.rule, options.threshold)
        self._wanted: dict[str, PodMoveRequest] = {}
        """Unsent requests by namespace and name."""
        self._sent_at = -1e18
        self._not_before = -1e18
        self._pause_seconds = _LEAST_PAUSE_SECONDS
        self._last_error = ""

    # Input.

    def put(self, sample: Sample) -> bool:
        """Queue a sample; false if the queue is full. Any thread may call."""
        if len(self._samples) >= _MOST_SAMPLES:
            return False
        self._samples.append((sample, self._clock()))
        return True

    def pod_at(self, address: str) -> str:
        """Name of the pod of this node with this address; empty if there is none. Any thread may call."""
        return self._addresses.get(address, "")

    def see(self, deltas: Iterable[Delta]) -> None:
        """Process changes of the pods of this node."""
        for delta in deltas:
            pod = delta.object
            if delta.change is DeltaKind.SEEN and isinstance(pod, NodePod):
                self._see(pod)
            elif delta.change is DeltaKind.GONE and pod is not None:
                self._end(pod.metadata.uid)
            elif delta.change is DeltaKind.ABSENT:
                _log.warning("%s", delta.why or "The pods of this node cannot be seen.")
        self._addresses = {
            each.pod.status.pod_ip: each.pod.metadata.name
            for each in self._pods.values()
            if each.pod.status.pod_ip and not each.pod.spec.host_network and not each.pod.has_ended
        }

    def _see(self, pod: NodePod) -> None:
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is None:
            reader = PodReader(pod, self._options.roots) if pod.job and not pod.has_ended else None
            self._pods[uid] = _Followed(pod, reader)
            return
        known.pod = pod
        if known.reader is not None:
            known.reader.see(pod)
            if pod.has_ended:
                self._read_last(known)

    def _end(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None and known.reader is not None:
            self._read_last(known)

    def _read_last(self, known: _Followed) -> None:
        """Read the last reports of a pod; its files may be deleted, but they are still open."""
        assert known.reader is not None
        self._take(known, known.reader.poll(is_last=True))
        known.reader.close()
        known.reader = None
        self._outbox.end(known.pod.metadata.uid, self._clock())

    # Polling.

    def poll(self) -> None:
        """Read reports since the last poll, and send what is due."""
        now = self._clock()
        self._process_samples(now)
        for known in list(self._pods.values()):
            if known.reader is not None:
                reports = known.reader.poll()
                if reports or known.reader.saves_on_request:
                    self._take(known, reports)
        self._convergence.forget_silent(now)
        self._send(now)

    def _process_samples(self, now: float) -> None:
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        if not samples:
            return
        names: dict[str, list[_Followed]] = {}
        for each in self._pods.values():
            if not each.pod.has_ended:
                names.setdefault(each.pod.metadata.name, []).append(each)
        measured = []
        for sample, at in samples:
            found = [
                each for each in names.get(sample.pod, ()) if sample.namespace in ("", each.pod.metadata.namespace)
            ]
            namespace = sample.namespace
            if len(found) == 1:
                namespace = found[0].pod.metadata.namespace
                if found[0].pod.job:
                    self._pass_on(found[0], [SourceReport(at, None, None, {"value": sample.value}, source="monitor")])
            measured.append(MetricSample(f"{namespace}/{sample.pod}", sample.value, at))
        self._judge(measured, now)

    def _take(self, known: _Followed, reports: Sequence[SourceReport]) -> None:
        self._pass_on(known, reports)
        if self._options.move_scope is MoveScope.ALL:
            self._judge(list(self._metric_samples(known.pod, reports)), self._clock())

    def _pass_on(self, known: _Followed, reports: Sequence[SourceReport]) -> None:
        meta = known.pod.metadata
        saves = known.reader is not None and known.reader.saves_on_request
        self._outbox.take(meta.uid, meta.namespace, meta.name, _is_first(known.pod), reports, saves)

    def _metric_samples(self, pod: NodePod, reports: Sequence[SourceReport]) -> Iterator[MetricSample]:
        metric, key = progress_of(pod).metric, f"{pod.metadata.namespace}/{pod.metadata.name}"
        for report in reports:
            value = report.metrics.get(main_metric(report.metrics, metric))
            if value is not None:
                yield MetricSample(key, value, report.at)

    def _judge(self, measured: Sequence[MetricSample], now: float) -> None:
        for key in self._convergence.add_samples(measured, now):
            if self._options.move_scope is not MoveScope.NONE:
                namespace, _, name = key.partition("/")
                self._wanted[key] = PodMoveRequest(self._options.node, name, namespace)

    # Output.

    def _send(self, now: float) -> None:
        if now < self._not_before:
            return
        try:
            self._send_reports(now)
            self._send_requests()
            if (
                self._options.move_scope is not MoveScope.NONE
                and len(self._convergence)
                and self._convergence.wants_info(now)
            ):
                self._convergence.set_node_infos(self._operator.cluster_info(), now)
            self._note_success()
        except Retry as failure:
            self._fail(str(failure), now)

    def _send_reports(self, now: float) -> None:
        if not self._outbox.is_due(now, self._sent_at):
            return
        for _ in range(2):  # a new operator answers with its memory id, and gets everything again
            batch = self._outbox.batch(now)
            if batch is None:
                return
            self._sent_at = now
            receipt = self._operator.send(batch)
            if receipt is None:
                self._outbox.confirm_batch()
                return
            self._outbox.resend_to(receipt.memory)

    def _send_requests(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for request in wanted.values():
            self._operator.ask_to_move(request)

    def _note_success(self) -> None:
        if self._last_error:
            _log.info("Operator reachable again")
        self._last_error, self._pause_seconds = "", _LEAST_PAUSE_SECONDS

    def _fail(self, failure: str, now: float) -> None:
        if not self._last_error:
            _log.warning("%s Will retry.", failure)
        self._last_error = failure
        self._wanted.clear()  # an old request is obsolete
        self._not_before = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _MOST_PAUSE_SECONDS)

    def close(self) -> None:
        for known in self._pods.values():
            if known.reader is not None:
                known.reader.close()


def _is_first(pod: NodePod) -> bool:
    """True for the first pod of its gang, and for a pod without an index."""
    labels = pod.metadata.labels
    return (labels.get(INDEX_LABEL) or labels.get(_KUBEFLOW_INDEX) or "0") == "0"
