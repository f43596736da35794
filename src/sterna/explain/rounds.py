"""Iteration over recorded rounds with a progress callback; at most one round is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from sterna.control.journal import Notice, Round, read_rounds

ReadProgress = Callable[[int, int], None]
"""Called with the number of lines read, and of all lines."""

_ROUNDS_BETWEEN_REPORTS = 50


def rounds_of(
    journal: str | Path, progress: ReadProgress | None = None, notice: Notice | None = None
) -> Iterator[Round]:
    """Yield every round; with `progress`, lines are counted first, which is cheap compared to parsing them."""
    total = _line_count(journal) if progress else 0
    for done, recorded in enumerate(read_rounds(journal, notice), 1):
        if progress and done % _ROUNDS_BETWEEN_REPORTS == 0:
            progress(done, total)
        yield recorded


def _line_count(journal: str | Path) -> int:
    with Path(journal).open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
