"""`sterna try-pattern`: show the progress that Sterna would read from a saved log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sterna.cli.parsing.parameters import AsJson
from sterna.errors import UserError

Log = Annotated[
    str,
    typer.Argument(metavar="LOG", help="Saved output of a training; or a .csv file, or a TensorBoard event file."),
]
Patterns = Annotated[
    list[str] | None,
    typer.Option("--pattern", metavar="RE", help="A regular expression with named groups; may be given several times."),
]


def command(log: Log, patterns: Patterns = None, as_json: AsJson = False) -> None:
    """Show the progress that Sterna would read from a saved log.

    Without --pattern the built-in patterns are tried: JSON lines, Hugging Face, Keras, tqdm, Lightning, and name=value
    in most of its forms. A pattern has named groups: step, total, and one for each metric.

    \b
    Examples:
      sterna try-pattern train.log
      sterna try-pattern train.log --pattern 'it (?P<step>\\d+) of (?P<total>\\d+): loss (?P<loss>\\S+)'
      sterna try-pattern metrics.csv --json
    """
    from sterna.cli.render.output import show_json, show_notices
    from sterna.progress.saved import read_saved

    found = read_saved(log, tuple(patterns or ()))
    show_notices(found.notices)
    if as_json:
        show_json(found.document())
    elif found.matched:
        _show(found.document())
    if not found.matched:
        raise UserError(found.what_to_do(log))


def _show(found: Mapping[str, Any]) -> None:
    from rich.table import Table

    from sterna.cli.render.output import console
    from sterna.model.formatting import format_count

    out = console()
    by = ", ".join(f"{name}: {count:,}" for name, count in found["patterns"].items())
    out.print(f"{format_count(found['matched'], 'line')} of {found['lines']:,} matched ({by})", soft_wrap=True)
    if found["metric"]:
        goal = "more is better" if found["goal"] == "max" else "less is better"
        out.print(f"the metric that counts: {found['metric']} ({goal})", soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    for heading in ("line", "step", "total", "metrics"):
        table.add_column(heading, justify="left" if heading == "metrics" else "right", overflow="fold")
    table.add_row("line", "step", "total", "metrics")
    for row in found["examples"]:
        metrics = "  ".join(f"{name}={_value(value)}" for name, value in row["metrics"].items())
        table.add_row(f"{row['line']:,}", _count(row["step"]), _count(row["total"]), metrics)
    out.print(table)


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
