"""Output of a container, as the container runtime stores it: one file per start, each line with a timestamp.

    2026-01-31T12:00:00.123456789Z stdout F step=10 loss=0.3

The tag `P` marks a line that continues in the next entry. A redrawn progress bar is a line of its own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sterna.progress.report import Positions, SourceReport
from sterna.progress.sources.stdout import LINES_PER_SECOND, LOG_SECONDS, line_reader, sample_lines
from sterna.progress.tail import Tail

_ENTRY = re.compile(rb"(\d{4}-\d\d-\d\dT\S+) (stdout|stderr) ([PF])(?::\S*)? ?(.*)", re.DOTALL)
_NUMBERED = re.compile(r"\d+\.log")
_LONGEST_LINE = 1 << 16
_MOST_SECONDS = 100.0


class _LogEntry(NamedTuple):
    stamp: bytes
    text: bytes


class ContainerOutput:
    """Follows the output of one container over all its starts."""

    def __init__(self, folder: Path, patterns: Sequence[str] = ()) -> None:
        self._folder = folder
        self._reader = line_reader(patterns)
        self._tail: Tail | None = None
        self._number = -1
        self._look_at = 0.0
        self._stamp = b""
        self._begun: dict[bytes, bytes] = {}
        """Beginning of an unfinished line, by stream."""
        self._polled_at = 0.0

    @property
    def notices(self) -> list[str]:
        return self._reader.notices

    def poll(self, is_last: bool) -> list[SourceReport]:
        now = time.monotonic()
        if now < self._look_at and not is_last:
            return []
        span_seconds = now - self._polled_at if self._polled_at else _MOST_SECONDS
        self._look_at, self._polled_at = now + LOG_SECONDS, now
        lines = self._lines(is_last)
        if not lines:
            return []
        most = int(min(max(span_seconds, 1.0), _MOST_SECONDS) * LINES_PER_SECOND)
        return list(self._reports(lines, most))

    def _lines(self, is_last: bool) -> list[bytes]:
        newest = _newest(self._folder)
        if newest < 0 and self._tail is None:
            return []
        found: list[bytes] = []
        if newest > self._number:
            if self._tail is not None:
                found = self._tail.lines(is_last=True)
                self._tail.close()
            self._number = newest
            self._tail = Tail(self._folder / f"{newest}.log", is_log=True, is_timed=False)
        assert self._tail is not None
        return found + self._tail.lines(is_last)

    def _reports(self, lines: list[bytes], most: int) -> Iterator[SourceReport]:
        printed = list(self._split_entries(lines))
        if len(printed) > most:
            # Keep the timestamp of each sampled line.
            by_text = {each.text: each for each in printed}
            printed = [by_text[text] for text in sample_lines([each.text for each in printed], most)]
        for each in printed:
            found = self._reader.read(each.text)
            if found is not None:
                row = found.row
                at = row.at if row.at is not None else _moment(each.stamp)
                yield SourceReport(at, row.step, row.total, row.metrics, source="stdout")

    def _split_entries(self, lines: list[bytes]) -> Iterator[_LogEntry]:
        for line in lines:
            entry = _ENTRY.fullmatch(line)
            if entry is None:  # a redraw of the line before it
                yield _LogEntry(self._stamp, line)
                continue
            self._stamp, stream, tag, text = entry.groups()
            text = self._begun.pop(stream, b"") + text
            if tag == b"P" and len(text) < _LONGEST_LINE:
                self._begun[stream] = text
            elif text:
                yield _LogEntry(self._stamp, text)

    def positions(self) -> Positions:
        return {}

    def close(self) -> None:
        """Close the file; a later poll continues at the same position."""
        if self._tail is not None:
            self._tail.close()


def _newest(folder: Path) -> int:
    """Number of the container's last start; -1 if there is no output."""
    try:
        names = os.listdir(folder)
    except OSError:
        return -1
    return max((int(name[:-4]) for name in names if _NUMBERED.fullmatch(name)), default=-1)


def _moment(stamp: bytes) -> float:
    try:
        return datetime.fromisoformat(stamp.decode("ascii", "replace")).timestamp()
    except (ValueError, OverflowError, OSError):
        return time.time()
