"""`sterna explain`: the story of one job, and what would start it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.cli.parsing.options import AsJson
from sterna.errors import UserError

Names = Annotated[
    list[str],
    typer.Argument(metavar="[JOURNAL] JOB", help="A file written with --journal, if it is about one; the job's name."),
]
At = Annotated[
    float | None, typer.Option("--at", metavar="SECONDS", help="End the story here, counted from the journal's start.")
]
Number = Annotated[int | None, typer.Option("--round", metavar="N", min=0, help="End the story with this round.")]


def command(
    names: Names,
    at: At = None,
    number: Number = None,
    as_json: AsJson = False,
    state: State = None,
    server: ServerUrl = None,
) -> None:
    """Tell what happened to a job and why; if it waits, what would start it.

    The job is one of the running cluster or, after the name of a journal, one of that journal.

    What would start it is found by deciding the recorded round again with one thing changed: more devices, another
    priority, another policy, a smaller minimum, or after those that run have ended.

    \b
    Examples:
      sterna explain train-1
      sterna explain train-1 --context lab
      sterna simulate --trace T --nodes 8x8 --policy srjf --journal run.jsonl
      sterna explain run.jsonl job-7
      sterna explain run.jsonl job-7 --at 3600
      sterna explain run.jsonl job-7 --round 12 --json
    """
    from sterna.cli.render.output import show_json, show_notices

    answer = _told(names, at, number, state, server)
    show_notices(answer.get("notices", ()))
    if as_json:
        show_json(answer)
    else:
        _show(answer)


def _told(
    names: list[str], at: float | None, number: int | None, state: str | None, server: str | None
) -> Mapping[str, Any]:
    """The document of a story, from a journal if one is named, else from the cluster."""
    if len(names) > 2:
        raise UserError(f"'{names[2]}' is one name too many; give a journal and a job, or a job of the cluster alone.")
    if len(names) == 1:
        if at is not None or number is not None:
            raise UserError("--at and --round choose from a journal; name one before the job.")
        found: Mapping[str, Any] = client(state, server).get("jobs", names[0], "explain")
        return found
    from sterna.cli.render.output import progress_bar
    from sterna.explain.narrative import explain

    with progress_bar("lines read") as progress:
        return explain(*names, at_seconds=at, number=number, progress=progress)


def _show(answer: Mapping[str, Any]) -> None:
    from rich.table import Table

    from sterna.cli.render.output import console
    from sterna.explain.formatting import duration

    out = console()
    is_journal = answer["round"] is not None
    upto = f"up to round {answer['round']}, " if is_journal else ""
    since = "the journal's start" if is_journal else "it was submitted"
    rules = f"{answer['policy']} / {answer['placement_rule']}"
    out.print(f"{answer['job']} under {rules}, {upto}{answer['at_s']:,.0f} s after {since}", soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for event in answer["story"]:
        at = event["at_s"]
        table.add_row(f"{at:,.0f} s", duration(at) if at >= 600 else "", event["sentence"])
    out.print(table)
    if answer["state"] == "waits":
        sentences = [change["sentence"] for change in answer["changes"]]
        out.print("What would start it:" if sentences else "No single change that was tried would start it.")
        for sentence in sentences:
            out.print(f"  {sentence}", soft_wrap=True)
