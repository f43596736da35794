"""`sterna history`: print the progress reports of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobName
from sterna.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from sterna.service.views import ProgressView

Output = Annotated[str, typer.Option("--output", "-o", metavar="csv|json|yaml", help="Format for programs.")]
Last = Annotated[int, typer.Option("--last", metavar="N", min=0, help="Only the last N reports; 0: all.")]

Record = dict[str, float | int | None]


@expand_options
def command(name: JobName, cluster: ClusterOptions, output: Output = "", last: Last = 20) -> None:
    """Print a job's progress reports, oldest first; they are kept over restarts and moves.

    \b
    Examples:
      sterna history train-1
      sterna history train-1 --last 0 -o csv > train-1.csv
    """
    if output not in ("", "csv", "json", "yaml"):
        raise UserError(f"-o {output}: {did_you_mean(output, ('csv', 'json', 'yaml'))}")
    reports = [_record(report) for report in cluster.connect().history(name)]
    reports = reports[-last:] if last else reports
    columns = list(dict.fromkeys(key for report in reports for key in report))
    if output == "csv":
        print(",".join(columns))
        for report in reports:
            print(",".join("" if report.get(key) is None else str(report[key]) for key in columns))
    elif output:
        from sterna.cli.commands.cluster.get import show_document

        show_document(reports, output)
    else:
        _show(name, columns, reports)


def _record(report: ProgressView) -> Record:
    """Return a report as one flat row, metrics beside the other columns."""
    return {"at": report.at, "attempt": report.attempt, "step": report.step, "total": report.total, **report.metrics}


def _show(name: str, columns: list[str], reports: list[Record]) -> None:
    from sterna.cli.render.columns import format_time, show_columns

    if not reports:
        print(f"{name} has reported nothing so far.")
        return
    rows = [
        [format_time(report["at"]), *(_cell(report.get(key)) for key in columns if key != "at")] for report in reports
    ]
    show_columns(["TIME", *(key.upper() for key in columns if key != "at")], rows)


def _cell(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
