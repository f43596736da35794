"""Select pods that should leave a node: those whose training has converged, and those of an overloaded node.

The rule is that of container-migration's monitor, with its defects repaired, or SpeCon's with its two parameters; both
use `model/growth.py`. The result are requests, at most one every three seconds for a pod; the operator decides. No
clock is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sterna.backends.kubernetes.lifecycle.overload import THRESHOLD, NodeInfo, is_overloaded
from sterna.model.growth import Growth, GrowthRule, GrowthTable, Strict

REQUEST_SECONDS = 3.0
"""Minimum interval between two requests for one pod."""
SILENT_SECONDS = 60.0
"""A pod without a sample for this time is forgotten."""
INFO_SECONDS = 60.0
"""Interval between two requests for the load of the cluster's nodes."""
_STALE_SECONDS = 300.0
"""Age at which the load of the nodes is stale."""
_MOST_PODS = 4096

CONTAINER_MIGRATION = GrowthRule(strict=Strict.CONTAINER_MIGRATION)


class MetricSample(NamedTuple):
    """A sample of a pod's metric."""

    pod: str
    value: float
    at: float


@dataclass
class _PodGrowth:
    """State of one pod."""

    row: int
    heard_at: float
    asked_at: float = -1e18


class ConvergenceDetector:
    """Growth of the metrics of one node's pods."""

    def __init__(self, node: str, rule: GrowthRule = CONTAINER_MIGRATION, threshold: float = THRESHOLD) -> None:
        self._node, self._threshold = node, threshold
        self._pods: dict[str, _PodGrowth] = {}
        self._table = GrowthTable(16, rule)
        self._free = list(range(16))
        self._infos: Mapping[str, NodeInfo] = {}
        self._informed_at = -1e18

    def set_node_infos(self, infos: Mapping[str, NodeInfo], now: float) -> None:
        """Store the load of the cluster's nodes."""
        self._infos, self._informed_at = infos, now

    def wants_info(self, now: float) -> bool:
        return now - self._informed_at >= INFO_SECONDS

    def add_samples(self, samples: Sequence[MetricSample], now: float) -> list[str]:
        """Process samples; return the names of pods among them whose move should be requested now."""
        self.forget_silent(now)
        known = [(self._find_or_add(sample.pod, now), sample) for sample in samples]
        heard = [(judged.row, sample) for judged, sample in known if judged is not None]
        if not heard:
            return []
        rows, values = [row for row, _ in heard], [sample.value for _, sample in heard]
        # Samples carry no step: each counts as one.
        self._table.update(rows, [-1.0] * len(rows), [sample.at for _, sample in heard], values)
        is_overloaded = self._is_overloaded(now)
        return [
            pod for pod in sorted({sample.pod for _, sample in heard}) if self._should_request(pod, is_overloaded, now)
        ]

    def _find_or_add(self, pod: str, now: float) -> _PodGrowth | None:
        """The state of a pod, new if it is unknown; None if there are too many."""
        known = self._pods.get(pod)
        if known is None:
            if len(self._pods) >= _MOST_PODS:
                return None
            if not self._free:
                size = len(self._table)
                self._table.resize(2 * size)
                self._free = list(range(size, 2 * size))
            known = self._pods[pod] = _PodGrowth(self._free.pop(), now)
        known.heard_at = now
        return known

    def _should_request(self, pod: str, is_overloaded: bool, now: float) -> bool:
        known = self._pods[pod]
        if now - known.asked_at < REQUEST_SECONDS:
            return False
        if self.growth_of(pod) is not Growth.CONVERGED and not is_overloaded:
            return False
        known.asked_at = now
        return True

    def _is_overloaded(self, now: float) -> bool:
        is_known = now - self._informed_at <= _STALE_SECONDS
        return is_known and is_overloaded(self._node, self._infos, self._threshold)

    def growth_of(self, pod: str) -> Growth:
        """A pod without samples counts as progressing."""
        known = self._pods.get(pod)
        return Growth(int(self._table.growth[known.row])) if known is not None else Growth.PROGRESSING

    def forget_silent(self, now: float) -> None:
        silent = [pod for pod, known in self._pods.items() if now - known.heard_at >= SILENT_SECONDS]
        rows = [self._pods.pop(pod).row for pod in silent]
        if rows:
            self._table.forget(rows)
            self._free += rows

    def __len__(self) -> int:
        return len(self._pods)
