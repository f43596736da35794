"""`sterna explain`: print what happened to one job, and what would start it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import AsJson
from sterna.errors import UserError

if TYPE_CHECKING:
    from sterna.service.views import Explanation

Names = Annotated[
    list[str],
    typer.Argument(metavar="[JOURNAL] JOB", help="A journal file (for jobs of a journal), and the job's name."),
]
At = Annotated[
    float | None,
    typer.Option("--at", metavar="SECONDS", help="Explain up to this time after the journal's start."),
]
Number = Annotated[int | None, typer.Option("--round", metavar="N", min=0, help="Explain up to this round.")]


@expand_options
def command(
    names: Names, cluster: ClusterOptions, at: At = None, number: Number = None, as_json: AsJson = False
) -> None:
    """Print what happened to a job and why; if it waits, what would start it.

    The job is one of the running cluster or, after the name of a journal, one of that journal.

    What would start it is found by deciding the last round again with one change: more devices, another priority,
    another policy, a smaller minimum, or after running jobs have ended.

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

    explanation = _explain(names, at, number, cluster)
    show_notices(explanation.notices)
    if as_json:
        import msgspec

        show_json(msgspec.to_builtins(explanation))
    else:
        _show(explanation)


def _explain(names: list[str], at: float | None, number: int | None, cluster: ClusterOptions) -> Explanation:
    """Explain a job from a journal if one is named, else from the cluster."""
    if len(names) > 2:
        raise UserError(f"'{names[2]}' is one name too many; give a journal and a job, or a job of the cluster alone.")
    if len(names) == 1:
        if at is not None or number is not None:
            raise UserError("--at and --round choose from a journal; name one before the job.")
        return cluster.connect().explain(names[0])
    import msgspec

    from sterna.cli.render.output import progress_bar
    from sterna.explain.narrative import explain
    from sterna.service.views import Explanation

    with progress_bar("lines read") as progress:
        document = explain(*names, at_seconds=at, number=number, progress=progress)
    return msgspec.convert(document, Explanation)


def _show(explanation: Explanation) -> None:
    from rich.table import Table

    from sterna.cli.render.output import console
    from sterna.control.failures import clock_time
    from sterna.explain.formatting import duration

    out = console()
    is_journal = explanation.round is not None
    upto = f"up to round {explanation.round}, " if is_journal else ""
    since = "the journal's start" if is_journal else "it was submitted"
    rules = f"{explanation.policy} / {explanation.placement_rule}"
    start, now = explanation.started_at, explanation.at_s
    when = f"{now:,.0f} s after {since}" if start is None else f"at {clock_time(start + now, time.time())}"
    out.print(f"{explanation.job} under {rules}, {upto}{when}", soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    if start is None:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for event in explanation.events:
        at = event.at_s
        seconds = (f"{at:,.0f} s", duration(at) if at >= 600 else "")
        table.add_row(*(seconds if start is None else (clock_time(start + at, start + now),)), event.sentence)
    out.print(table)
    if explanation.state == "waits":
        sentences = [change.sentence for change in explanation.changes]
        out.print("What would start it:" if sentences else "No single change that was tried would start it.")
        for sentence in sentences:
            out.print(f"  {sentence}", soft_wrap=True)
