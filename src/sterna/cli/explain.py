"""`sterna explain`: the story of one job, and what would start it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sterna.cli.options import AsJson

Journal = Annotated[str, typer.Argument(metavar="JOURNAL", help="A file written with --journal.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
At = Annotated[
    float | None, typer.Option("--at", metavar="SECONDS", help="End the story here, counted from the journal's start.")
]
Number = Annotated[int | None, typer.Option("--round", metavar="N", min=0, help="End the story with this round.")]


def command(journal: Journal, job: Job, at: At = None, number: Number = None, as_json: AsJson = False) -> None:
    """Tell what happened to a job and why; if it waits, what would start it.

    What would start it is found by deciding the recorded round again with one thing changed: more devices, another
    priority, another policy, a smaller minimum, or after those that run have ended.

    \b
    Examples:
      sterna simulate --trace T --nodes 8x8 --policy srjf --journal run.jsonl
      sterna explain run.jsonl job-7
      sterna explain run.jsonl job-7 --at 3600
      sterna explain run.jsonl job-7 --round 12 --json
    """
    from sterna.cli.output import progress_bar, show_json, show_notices
    from sterna.story.telling import explain

    with progress_bar("lines read") as progress:
        answer = explain(journal, job, at_seconds=at, number=number, progress=progress)
    show_notices(answer.get("notices", ()))
    if as_json:
        show_json(answer)
    else:
        _show(answer)


def _show(answer: Mapping[str, Any]) -> None:
    from rich.table import Table

    from sterna.cli.output import console
    from sterna.story.words import duration

    out = console()
    upto = f"round {answer['round']}, {answer['at_s']:,.0f} s after the journal's start"
    out.print(f"{answer['job']} under {answer['policy']} / {answer['placement_rule']}, up to {upto}", soft_wrap=True)
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
