"""One report of progress, and the protocol of whatever produces reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from sterna.progress.names import ProgressRow
from sterna.progress.tail import Position

Positions = dict[str, Position]
"""How far each file has been read, by a name that begins with the name of its source."""


class SourceReport(msgspec.Struct, frozen=True):
    """One line of progress."""

    at: float
    """Seconds since 1970."""
    step: int | None
    """Steps done."""
    total: int | None
    metrics: dict[str, float | None]
    """None: the value was not finite."""
    generation: int = 0
    """Of the membership, for jobs that resize while they run; 0 if unknown."""
    source: str = "agent"
    """Name of the progress source."""
    saved: bool = False
    """A complete checkpoint of this step exists."""
    cpu_seconds: float = 0.0
    """CPU time that the reporting process had used; 0 if unknown."""


class Source(Protocol):
    """Reads one way in for one replica. It never raises for what a job has written, and never blocks."""

    def poll(self, is_last: bool) -> list[SourceReport]:
        """Reports since the last poll. `is_last`: the replica has ended, so an unfinished line counts too."""
        ...

    def positions(self) -> Positions:
        """Positions at which the next reader of the same replica continues."""
        ...

    def close(self) -> None: ...


class OutputSource(Source, Protocol):
    """A source that reads what a replica prints."""

    @property
    def notices(self) -> list[str]: ...


def spread_over_time(
    rows: Sequence[ProgressRow | None], since: float, until: float, now: float, source: str
) -> Iterator[SourceReport]:
    """Reports of rows, in which those without a time are spread evenly from the last poll to the file's last change:
    that matters after a long time without a poll."""
    end = min(until or now, now)
    begin = min(since or end, end)
    for number, each in enumerate(rows, 1):
        if each is not None:
            at = each.at if each.at is not None else begin + (end - begin) * number / len(rows)
            yield SourceReport(at, each.step, each.total, each.metrics, source=source)


def position_entry(name: str, position: Position | None) -> Positions:
    return {} if position is None else {name: position}
