"""`sterna history`: what a job has reported of its progress."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.errors import UserError, did_you_mean

Name = Annotated[str, typer.Argument(metavar="JOB", help="The job.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="csv|json|yaml", help="For programs.")]
Last = Annotated[int, typer.Option("--last", metavar="N", min=0, help="Only the last N reports; 0: all.")]


def command(name: Name, output: Output = "", last: Last = 20, state: State = None, server: ServerUrl = None) -> None:
    """Print a job's progress reports, oldest first; they are kept over restarts and moves.

    \b
    Examples:
      sterna history train-1
      sterna history train-1 --last 0 -o csv > train-1.csv
    """
    if output not in ("", "csv", "json", "yaml"):
        raise UserError(f"-o {output}: {did_you_mean(output, ('csv', 'json', 'yaml'))}")
    reports: list[dict[str, Any]] = client(state, server).get("jobs", name, "history")
    reports = reports[-last:] if last else reports
    names = list(dict.fromkeys(key for report in reports for key in report))
    if output == "csv":
        print(",".join(names))
        for report in reports:
            print(",".join("" if report.get(key) is None else str(report[key]) for key in names))
    elif output:
        from sterna.cli.commands.cluster.get import show_document

        show_document(reports, output)
    else:
        _show(name, names, reports)


def _show(name: str, names: list[str], reports: list[dict[str, Any]]) -> None:
    from sterna.cli.render.columns import clock, show_columns

    if not reports:
        print(f"{name} has reported nothing so far.")
        return
    rows = [[clock(report["at"]), *(_cell(report.get(key)) for key in names if key != "at")] for report in reports]
    show_columns(["TIME", *(key.upper() for key in names if key != "at")], rows)


def _cell(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
