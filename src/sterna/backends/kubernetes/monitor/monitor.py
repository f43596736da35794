"""The monitor of one node: hears what the pods there tell, passes it on, and asks for those to be moved that should be.

One thread looks, a second at most apart: at what the API server says of pods, at the samples that jobs have sent, at
the files of each pod. What goes wrong on the way to the operator is said once, and tried again later; a monitor that
knows nothing costs nobody anything, and training never waits for it. DRAGON-60 to 66, 80 to 84.
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
from sterna.backends.kubernetes.monitor.convergence import CONTAINER_MIGRATION, Judging, Measured
from sterna.backends.kubernetes.monitor.host_paths import Roots
from sterna.backends.kubernetes.monitor.operator_client import Operator
from sterna.backends.kubernetes.monitor.outbox import Outbox
from sterna.backends.kubernetes.monitor.pods import NodePod, progress_of
from sterna.backends.kubernetes.monitor.reader import PodReader
from sterna.backends.kubernetes.monitor.sample_server import Sample
from sterna.errors import Retry
from sterna.kinds.labels import INDEX_LABEL
from sterna.model.growth import GrowthRule
from sterna.progress.names import main_metric
from sterna.progress.report import Report

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_MOST_SAMPLES = 10_000
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 1.0, 30.0
_KUBEFLOW_INDEX = "training.kubeflow.org/replica-index"


class ApiReader(Enum):
    """For which pods moves are asked for."""

    POSTED = "posted"
    """Those that send their metric here, as container-migration's do; of all others the operator knows as much."""
    ALL = "all"
    """All that tell a metric, by whatever way: SpeCon's agent of a node."""
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """How a monitor is started."""

    node: str
    roots: Roots = field(default_factory=Roots)
    asking: ApiReader = ApiReader.POSTED
    rule: GrowthRule = CONTAINER_MIGRATION
    threshold: float = THRESHOLD


@dataclass
class _Followed:
    """A pod that is there."""

    pod: NodePod
    reader: PodReader | None = None
    """None: it belongs to nobody we look after, or has ended."""


class Monitor:
    """Everything but the way in and out: deltas and samples come in, `look` does the rest."""

    def __init__(
        self,
        options: Options,
        operator: Operator,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options, self._operator, self._clock = options, operator, clock
        self._pods: dict[str, _Followed] = {}
        """By uid."""
        self._addresses: dict[str, str] = {}
        self._samples: deque[tuple[Sample, float]] = deque()
        self._outbox = Outbox(options.node)
        self._judging = Judging(options.node, options.rule, options.threshold)
        self._wanted: dict[str, PodMoveRequest] = {}
        """Requests that have not been sent, by namespace and name."""
        self._sent_at = -1e18
        self._not_before = -1e18
        self._pause_seconds = _LEAST_PAUSE_SECONDS
        self._trouble = ""

    # The way in.

    def put(self, sample: Sample) -> bool:
        """From any thread."""
        if len(self._samples) >= _MOST_SAMPLES:
            return False
        self._samples.append((sample, self._clock()))
        return True

    def pod_at(self, address: str) -> str:
        """From any thread: whose address it is, of the pods of this node that have their own."""
        return self._addresses.get(address, "")

    def see(self, deltas: Iterable[Delta]) -> None:
        """What the API server says of the pods of this node."""
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
        """What it told just before it ended; its files may be gone, but they are open."""
        assert known.reader is not None
        self._take(known, known.reader.poll(is_last=True))
        known.reader.close()
        known.reader = None
        self._outbox.end(known.pod.metadata.uid, self._clock())

    # Looking.

    def look(self) -> None:
        """Hear what was told since the last time, and pass on what is due."""
        now = self._clock()
        self._hear_samples(now)
        for known in list(self._pods.values()):
            if known.reader is not None:
                reports = known.reader.poll()
                if reports:
                    self._take(known, reports)
        self._judging.forget_silent(now)
        self._speak(now)

    def _hear_samples(self, now: float) -> None:
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
                    self._pass_on(found[0], [Report(at, None, None, {"value": sample.value}, source="monitor")])
            measured.append(Measured(f"{namespace}/{sample.pod}", sample.value, at))
        self._judge(measured, now)

    def _take(self, known: _Followed, reports: Sequence[Report]) -> None:
        self._pass_on(known, reports)
        if self._options.asking is ApiReader.ALL:
            self._judge(list(self._measured(known.pod, reports)), self._clock())

    def _pass_on(self, known: _Followed, reports: Sequence[Report]) -> None:
        meta = known.pod.metadata
        self._outbox.take(meta.uid, meta.namespace, meta.name, _is_first(known.pod), reports)

    def _measured(self, pod: NodePod, reports: Sequence[Report]) -> Iterator[Measured]:
        metric, key = progress_of(pod).metric, f"{pod.metadata.namespace}/{pod.metadata.name}"
        for report in reports:
            value = report.metrics.get(main_metric(report.metrics, metric))
            if value is not None:
                yield Measured(key, value, report.at)

    def _judge(self, measured: Sequence[Measured], now: float) -> None:
        for key in self._judging.hear(measured, now):
            if self._options.asking is not ApiReader.NONE:
                namespace, _, name = key.partition("/")
                self._wanted[key] = PodMoveRequest(self._options.node, name, namespace)

    # The way out.

    def _speak(self, now: float) -> None:
        if now < self._not_before:
            return
        try:
            self._send_reports(now)
            self._send_requests()
            if self._options.asking is not ApiReader.NONE and len(self._judging) and self._judging.wants_info(now):
                self._judging.learn(self._operator.cluster_info(), now)
            self._mended()
        except Retry as trouble:
            self._fail(str(trouble), now)

    def _send_reports(self, now: float) -> None:
        if not self._outbox.is_due(now, self._sent_at):
            return
        for _ in range(2):  # an operator that is met for the first time says so, and is told everything
            batch = self._outbox.batch(now)
            if batch is None:
                return
            self._sent_at = now
            receipt = self._operator.send(batch)
            if receipt is None:
                self._outbox.arrived()
                return
            self._outbox.meet(receipt.memory)

    def _send_requests(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for request in wanted.values():
            self._operator.ask_to_move(request)

    def _mended(self) -> None:
        if self._trouble:
            _log.info("The operator answers again.")
        self._trouble, self._pause_seconds = "", _LEAST_PAUSE_SECONDS

    def _fail(self, trouble: str, now: float) -> None:
        if not self._trouble:
            _log.warning("%s It is tried again.", trouble)
        self._trouble = trouble
        self._wanted.clear()  # a wish that is old is none
        self._not_before = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _MOST_PAUSE_SECONDS)

    def close(self) -> None:
        for known in self._pods.values():
            if known.reader is not None:
                known.reader.close()


def _is_first(pod: NodePod) -> bool:
    """Of its gang; a pod that does not say so is alone."""
    labels = pod.metadata.labels
    return (labels.get(INDEX_LABEL) or labels.get(_KUBEFLOW_INDEX) or "0") == "0"
