"""`sterna reproduce`: repeat published experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.parsing.options import ReportFile
from sterna.cli.parsing.parameters import AsJson
from sterna.experiments.reproduction.studies import ALL, STUDIES, parse_study

if TYPE_CHECKING:
    from rich.table import Table

    from sterna.experiments.reproduction.outcome import Reproduction

Study = Annotated[str, typer.Argument(metavar="|".join((*STUDIES, ALL)), show_default=False)]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", help="Seeds of each study; rows that only inform take fewer, as noted.")
]

_WIDEST = 43
"""Widest first column, so that the notes need not be folded."""


def command(study: Study, seeds: Seeds = 20, report: ReportFile = None, as_json: AsJson = False) -> None:
    """Repeat a published experiment, and print our results beside the published ones.

    The workloads ship with Sterna. Each row is a figure: as published, our target, ours, and whether the target holds.
    A target that does not hold is no error.

    \b
    Examples:
      sterna reproduce voda
      sterna reproduce all --seeds 50 --report reproductions.html
      sterna reproduce voda --json
    """
    from sterna.cli.parsing.argv import command_line
    from sterna.cli.render.files import output_file
    from sterna.cli.render.output import show_json
    from sterna.errors import UserError

    names = parse_study(study)
    if seeds < 1:
        raise UserError(f"--seeds {seeds}: use at least one; 20 or more give intervals that mean something.")
    if report is not None:
        from sterna.experiments.report.figures import plotly_objects

        plotly_objects()
    with output_file(report, "--report") as write_report:
        numbered = [f"{name}, study {number} of {len(names)}" for number, name in enumerate(names, 1)]
        titles = names if len(names) == 1 else numbered
        done = [_run_study(name, seeds, title) for name, title in zip(names, titles, strict=True)]
        if report is not None:
            from sterna.experiments.reproduction.page import reproduction_page

            write_report(reproduction_page(done, command_line()))
    if as_json:
        documents = [each.as_document() for each in done]
        show_json({"reproductions": documents} if study == ALL else documents[0])
    else:
        _show(done)


def _run_study(name: str, seeds: int, title: str) -> Reproduction:
    from sterna.cli.render.output import progress_bar, progress_lines
    from sterna.experiments.reproduction.studies import load_study

    with progress_bar(f"{title}: done") as bar:
        return load_study(name)(seeds, bar or progress_lines(title))


def _show(reproductions: Sequence[Reproduction]) -> None:
    from sterna.cli.render.output import console

    out = console()
    for number, each in enumerate(reproductions):
        if number:
            out.print()
        out.print(f"{each.name}: {each.question}", soft_wrap=True)
        out.print(_table(each))
        out.print(each.verdict, soft_wrap=True)
        for remark in each.remarks:
            out.print(f"- {remark}", soft_wrap=True)


def _table(reproduction: Reproduction) -> Table:
    """Put each case on a line of its own, with its metrics below it, so that a row fits into 100 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from sterna.experiments.reproduction.outcome import format_value

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    longest = max(len(text) for row in reproduction.rows for text in (row.case, f"  {row.metric}"))
    table.add_column("case / metric", width=min(longest, _WIDEST), overflow="fold")
    for title in ("published", "target", "ours", "holds", "note"):
        is_number = title in ("published", "target", "ours")
        table.add_column(title, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    case = None
    for row in reproduction.rows:
        if row.case != case:
            case = row.case
            table.add_row(case)
        numbers = (format_value(row.published), row.target_text, format_value(row.ours))
        holds = {True: "yes", False: "no", None: ""}[row.holds]
        table.add_row(f"  {row.metric}", *numbers, holds, row.note)
    return table
