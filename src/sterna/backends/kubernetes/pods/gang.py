"""A gang as each of its pods is told about it: ranks, size, and where all of it sits.

Made once for a gang and asked by each of its members: five hundred pods of one gang are made in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sterna.backends.kubernetes.api.assignment import encode_assignment
from sterna.backends.kubernetes.api.job import ReplicaAssignment

_UNRANKED = frozenset({"ps", "evaluator", "launcher"})
"""Types that take no part in the ranks of a training."""
_FIRST = ("chief", "master")


class Gang:
    """All replicas of a job that shall run together."""

    def __init__(self, replicas: tuple[ReplicaAssignment, ...]) -> None:
        self.replicas = replicas
        ordered = sorted(replicas, key=_rank_order)
        self._ranks = {(replica.type, replica.index): rank for rank, replica in enumerate(ordered)}
        self.size = sum(replica.type not in _UNRANKED for replica in replicas)
        self.assignment = encode_assignment(replicas)

    def rank(self, replica: ReplicaAssignment) -> int:
        """Chief or master first, then workers, then those that have no rank; 0 for whoever is not of the gang."""
        return self._ranks.get((replica.type, replica.index), 0)


@lru_cache(maxsize=64)
def _gang(replicas: tuple[ReplicaAssignment, ...]) -> Gang:
    return Gang(replicas)


def gang_of(replicas: Sequence[ReplicaAssignment]) -> Gang:
    return _gang(tuple(replicas))


def _rank_order(replica: ReplicaAssignment) -> tuple[bool, bool, str, int]:
    return replica.type in _UNRANKED, replica.type not in _FIRST, replica.type, replica.index
