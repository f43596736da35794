"""Recorded rounds, one after the other, with word of how far the reading is. Never more than one of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from sterna.control.journal import Notice, Round, read_rounds

Progress = Callable[[int, int], None]
"""Told how many lines of the journal are read, and of how many."""

_ROUNDS_BETWEEN_REPORTS = 50


def rounds_of(journal: str | Path, progress: Progress | None = None, notice: Notice | None = None) -> Iterator[Round]:
    """Every round; lines are counted first, which is cheap beside reading them, if anybody wants to know."""
    total = _line_count(journal) if progress else 0
    for done, recorded in enumerate(read_rounds(journal, notice), 1):
        if progress and done % _ROUNDS_BETWEEN_REPORTS == 0:
            progress(done, total)
        yield recorded


def _line_count(journal: str | Path) -> int:
    with Path(journal).open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
