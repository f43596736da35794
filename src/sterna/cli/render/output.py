"""Output of commands: results to stdout, everything else to stderr, progress bars to terminals only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 100
"""Columns of output that is not a terminal."""

ReportProgress = Callable[[int, int], None]


def show_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def show_notices(notices: Iterable[str]) -> None:
    for notice in notices:
        print(f"note: {notice}", file=sys.stderr)


def console() -> Console:
    """Return a console on stdout; plain text when piped."""
    from rich.console import Console

    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_known else _WIDTH, markup=False, emoji=False, highlight=False)


def progress_lines(what: str) -> ReportProgress:
    """Return a callback that prints a line to stderr at every quarter, for long commands without a terminal."""
    quarters = 0

    def report(done: int, total: int) -> None:
        nonlocal quarters
        if 4 * done // total > quarters:
            quarters = 4 * done // total
            print(f"{what}: {25 * quarters} %", file=sys.stderr, flush=True)

    return report


@contextmanager
def progress_bar(what: str) -> Iterator[ReportProgress | None]:
    """Yield a callback that draws a progress bar; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)

    def report(done: int, total: int) -> None:
        # Started late: the bar has a thread, and processes must not be forked while it runs.
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
