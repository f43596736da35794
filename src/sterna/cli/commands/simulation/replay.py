"""`sterna replay`: decide a recorded round again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.parsing.parameters import AsJson, JournalFile
from sterna.cli.parsing.rule_options import RecordedPlacement, check_single_policy

if TYPE_CHECKING:
    from rich.console import Console

Number = Annotated[int, typer.Option("--round", metavar="N", min=0, help="Number of the round, from 0.")]
RecordedPolicy = Annotated[
    str | None,
    typer.Option("--policy", callback=check_single_policy, help="Policy to decide with.  [default: as recorded]"),
]


def command(
    journal: JournalFile,
    number: Number,
    policy: RecordedPolicy = None,
    placement: RecordedPlacement = None,
    as_json: AsJson = False,
) -> None:
    """Decide a recorded round again, and compare the plan with the recorded one.

    The same rules give the same plan, to the last worker; other rules show what they would have done.

    \b
    Examples:
      sterna simulate --trace T --nodes 8x8 --policy srjf --journal run.jsonl
      sterna replay run.jsonl --round 12
      sterna replay run.jsonl --round 12 --policy afs-l --json
    """
    from sterna.cli.render.output import console, show_json
    from sterna.cli.render.tables import show_plan
    from sterna.planning import replay

    answer = replay(journal, number, policy, placement)
    if as_json:
        show_json(answer)
        return
    out = console()
    out.print(
        f"Round {number} at {answer['now']:g} s, decided again by {answer['policy']} / {answer['placement_rule']}"
    )
    show_plan(answer, answer["recorded"]["workers"])
    if "shadow" in answer:
        _show_shadow(out, answer["shadow"])
    out.print("The plan is the recorded one." if answer["same"] else "The plan differs from the recorded one.")


def _show_shadow(out: Console, shadow: dict[str, Any]) -> None:
    """Print the plan and forecast of the shadow policy."""
    from sterna.model.formatting import format_count

    if not shadow["differs"]:
        out.print(f"In the shadow {shadow['policy']} would have done the same.")
        return
    actions = [f"{each['action']} {each['job']}" for each in shadow["actions"]] or ["nothing"]
    more = f" and {len(actions) - 6} more" if len(actions) > 6 else ""
    then, now = shadow["recorded_forecast"], shadow["forecast"]
    out.print(
        f"In the shadow {shadow['policy']} would have done: {', '.join(actions[:6])}{more}; it expected "
        f"{format_count(now['jobs'], 'job')} at {now['speed']:.1f} times the speed of one worker, instead of "
        f"{then['jobs']} at {then['speed']:.1f}."
    )
