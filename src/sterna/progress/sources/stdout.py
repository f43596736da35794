"""What a replica prints, matched by the job's own patterns or by the built-in ones."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from sterna.errors import UserError
from sterna.progress.lines import LineReader, may_hold_progress
from sterna.progress.registry import register
from sterna.progress.report import Positions, SourceReport, position_entry, spread_over_time
from sterna.progress.source_kind import SourceFiles, SourceKind
from sterna.progress.tail import Tail

LOG_FILE = "out.log"
LOG_SECONDS = 1.0
"""Interval between two reads of the output."""
LINES_PER_SECOND = 20
"""Lines that are matched per second of output; the rest of a flood is skipped."""
_MOST_SECONDS = 100.0


class StdoutSource:
    """Follows the captured output of a replica."""

    def __init__(self, patterns: Sequence[str], files: SourceFiles) -> None:
        self._tail = Tail(files.folder / LOG_FILE, files.positions.get("stdout"), is_log=True)
        self._reader = line_reader(patterns)
        self._clock = files.clock
        self._next_poll = 0.0

    @property
    def notices(self) -> list[str]:
        return self._reader.notices

    def poll(self, is_last: bool) -> list[SourceReport]:
        now = time.monotonic()
        if now < self._next_poll and not is_last:
            return []
        self._next_poll = now + LOG_SECONDS
        before = self._tail.previous_at
        lines = self._tail.lines(is_last)
        if not lines:
            return []
        span_seconds = self._tail.changed_at - before if before else 1.0
        lines = sample_lines(lines, int(min(max(span_seconds, 1.0), _MOST_SECONDS) * LINES_PER_SECOND))
        rows = [found.row if found else None for found in map(self._reader.read, lines)]
        return list(spread_over_time(rows, before, self._tail.changed_at, self._clock(), "stdout"))

    def positions(self) -> Positions:
        return position_entry("stdout", self._tail.position)

    def close(self) -> None:
        self._tail.close()


def line_reader(patterns: Sequence[str]) -> LineReader:
    """A reader for patterns that were checked when the job was submitted. One that slipped through must not stop the
    monitor, so the built-in patterns take its place."""
    try:
        return LineReader(tuple(patterns))
    except UserError as error:
        reader = LineReader()
        reader.notices.append(f"{error} Until then the built-in patterns are used.")
        return reader


def sample_lines(lines: list[bytes], most: int) -> list[bytes]:
    """At most `most` lines that may hold progress: the newest, and others evenly spaced."""
    if len(lines) <= most:
        return lines
    candidates = [line for line in lines if may_hold_progress(line.decode("utf-8", "replace"))] or lines
    newest = most // 2
    rest = candidates[:-newest]
    return rest[:: max(1, -(-len(rest) // (most - newest)))] + candidates[-newest:]


def _parse(value: Any) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not all(isinstance(each, str) and _has_groups(each) for each in patterns):
        raise ValueError(r"a regular expression with named groups such as step=(?P<step>\d+)")
    return patterns


def _has_groups(pattern: str) -> bool:
    try:
        return bool(re.compile(pattern).groupindex)
    except (re.error, RecursionError, OverflowError):
        return False


SOURCE = register(
    SourceKind(
        name="stdout",
        summary="lines of output, by regular expressions with named groups; without them, by the built-in patterns",
        parse=_parse,
        open=lambda patterns, files: StdoutSource(patterns or (), files),
        is_always_on=True,
    )
)
