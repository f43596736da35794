"""What commands print: the result to stdout, everything else to stderr, progress only to a terminal."""

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
"""Columns when nobody says how wide the output is: a pipe or a file."""

Report = Callable[[int, int], None]


def show_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def show_notices(notices: Iterable[str]) -> None:
    for notice in notices:
        print(f"note: {notice}", file=sys.stderr)


def console() -> Console:
    """Stdout for tables: plain text when piped."""
    from rich.console import Console

    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_known else _WIDTH, markup=False, emoji=False, highlight=False)


@contextmanager
def progress_bar(what: str) -> Iterator[Report | None]:
    """Something to tell of progress; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)

    def report(done: int, total: int) -> None:
        # Begun only now: the bar has a thread, and processes may not be forked while there are any.
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
