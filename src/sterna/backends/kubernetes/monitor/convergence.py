"""Which pods of a node should leave it: those whose training has converged, and those of an overloaded node.

container-migration's monitor, repaired, or SpeCon's with its two parameters; the arithmetic of both is `model/growth`.
What comes out are requests, at most one in three seconds for a pod; the operator decides what becomes of them.
DRAGON-61 to 66, 81 to 84. No clock is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sterna.backends.kubernetes.lifecycle.overload import THRESHOLD, NodeInfo, is_overloaded
from sterna.model.growth import Growth, GrowthRule, GrowthTable, Strict

REQUEST_SECONDS = 3.0
"""Least time between two requests for one pod."""
SILENT_SECONDS = 60.0
"""A pod that has said nothing for so long is forgotten."""
INFO_SECONDS = 60.0
"""How often the cluster is asked how its nodes are."""
_STALE_SECONDS = 300.0
"""Older news of the cluster say nothing about overload any more."""
_MOST_PODS = 4096

CONTAINER_MIGRATION = GrowthRule(strict=Strict.CONTAINER_MIGRATION)


class Measured(NamedTuple):
    """A sample of a pod's metric."""

    pod: str
    value: float
    at: float


@dataclass
class _Judged:
    """What is known of one pod."""

    row: int
    heard_at: float
    asked_at: float = -1e18


class Judging:
    """The pods of one node, by whatever name they go."""

    def __init__(self, node: str, rule: GrowthRule = CONTAINER_MIGRATION, threshold: float = THRESHOLD) -> None:
        self._node, self._threshold = node, threshold
        self._pods: dict[str, _Judged] = {}
        self._table = GrowthTable(16, rule)
        self._free = list(range(16))
        self._infos: Mapping[str, NodeInfo] = {}
        self._informed_at = -1e18

    def learn(self, infos: Mapping[str, NodeInfo], now: float) -> None:
        """How the nodes of the cluster are."""
        self._infos, self._informed_at = infos, now

    def wants_info(self, now: float) -> bool:
        return now - self._informed_at >= INFO_SECONDS

    def hear(self, samples: Sequence[Measured], now: float) -> list[str]:
        """Take in samples; the pods among them that should be asked to leave now, by name."""
        self.forget_silent(now)
        known = [(self._known(sample.pod, now), sample) for sample in samples]
        heard = [(judged.row, sample) for judged, sample in known if judged is not None]
        if not heard:
            return []
        rows, values = [row for row, _ in heard], [sample.value for _, sample in heard]
        # Steps are not counted: every sample is one.
        self._table.update(rows, [-1.0] * len(rows), [sample.at for _, sample in heard], values)
        is_overloaded = self._is_overloaded(now)
        return [pod for pod in sorted({sample.pod for _, sample in heard}) if self._asks(pod, is_overloaded, now)]

    def _known(self, pod: str, now: float) -> _Judged | None:
        """None: a node has no more pods than this."""
        known = self._pods.get(pod)
        if known is None:
            if len(self._pods) >= _MOST_PODS:
                return None
            if not self._free:
                size = len(self._table)
                self._table.resize(2 * size)
                self._free = list(range(size, 2 * size))
            known = self._pods[pod] = _Judged(self._free.pop(), now)
        known.heard_at = now
        return known

    def _asks(self, pod: str, is_overloaded: bool, now: float) -> bool:
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
        """One that has not been heard of has just begun."""
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
