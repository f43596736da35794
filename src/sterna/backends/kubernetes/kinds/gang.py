"""A gang as each of its pods is told about it: ranks, size, and where all of it sits.

Made once for a gang and asked by each of its members: five hundred pods of one gang are made in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sterna.backends.kubernetes.api.assignment import written_assignment
from sterna.backends.kubernetes.api.job import Seat

_UNRANKED = frozenset({"ps", "evaluator", "launcher"})
"""Types that take no part in the ranks of a training."""
_FIRST = ("chief", "master")


class Gang:
    """All replicas of a job that shall run together."""

    def __init__(self, seats: tuple[Seat, ...]) -> None:
        self.seats = seats
        ordered = sorted(seats, key=_rank_order)
        self._ranks = {(seat.type, seat.index): rank for rank, seat in enumerate(ordered)}
        self.size = sum(seat.type not in _UNRANKED for seat in seats)
        self.assignment = written_assignment(seats)

    def rank(self, seat: Seat) -> int:
        """Chief or master first, then workers, then those that have no rank; 0 for whoever is not of the gang."""
        return self._ranks.get((seat.type, seat.index), 0)


@lru_cache(maxsize=64)
def _gang(seats: tuple[Seat, ...]) -> Gang:
    return Gang(seats)


def gang_of(seats: Sequence[Seat]) -> Gang:
    return _gang(tuple(seats))


def _rank_order(seat: Seat) -> tuple[bool, bool, str, int]:
    return seat.type in _UNRANKED, seat.type not in _FIRST, seat.type, seat.index
