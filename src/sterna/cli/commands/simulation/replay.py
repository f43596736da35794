"""`sterna replay`: one recorded round, decided again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.parsing.options import one_policy
from sterna.cli.parsing.parameters import AsJson

if TYPE_CHECKING:
    from rich.console import Console

Journal = Annotated[str, typer.Argument(metavar="JOURNAL", help="A file written with --journal.")]
Number = Annotated[int, typer.Option("--round", metavar="N", min=0, help="Which round, counted from 0.")]
Policy = Annotated[
    str | None,
    typer.Option("--policy", callback=one_policy, help="Decide it with this instead of the recorded policy."),
]
Placement = Annotated[str | None, typer.Option("--placement", help="And with this placement.")]


def command(
    journal: Journal, number: Number, policy: Policy = None, placement: Placement = None, as_json: AsJson = False
) -> None:
    """Decide a recorded round again, and compare with what was done then.

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
    """What the policy in the shadow would have done then, and what it expected."""
    from sterna.model.formatting import counted

    if not shadow["differs"]:
        out.print(f"In the shadow {shadow['policy']} would have done the same.")
        return
    deeds = [f"{deed['action']} {deed['job']}" for deed in shadow["actions"]] or ["nothing"]
    more = f" and {len(deeds) - 6} more" if len(deeds) > 6 else ""
    then, now = shadow["recorded_forecast"], shadow["forecast"]
    out.print(
        f"In the shadow {shadow['policy']} would have done: {', '.join(deeds[:6])}{more}; it expected "
        f"{counted(now['jobs'], 'job')} at {now['speed']:.1f} times the speed of one worker, instead of {then['jobs']} "
        f"at {then['speed']:.1f}."
    )
