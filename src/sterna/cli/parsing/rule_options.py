"""Options that choose rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from sterna.errors import UserError

PLACEMENT_HELP = "Rule that chooses the node of each worker."


def check_single_policy(text: str | None) -> str | None:
    """Reject a list of policies where one is expected; `sterna compare` takes lists."""
    if text is not None and ("," in text or text.strip() == "all") and not text.endswith(".py"):
        raise UserError(
            f"--policy {text}: one policy is run at a time; to see several side by side use sterna compare --policies "
            f"{text}."
        )
    return text


PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy", callback=check_single_policy, help="name or name:key=value:key=value; see `sterna policies`."
    ),
]
PlacementOption = Annotated[
    str | None, typer.Option("--placement", help=f"{PLACEMENT_HELP}  [default: stay; with dragon: pack]")
]
RecordedPlacement = Annotated[str | None, typer.Option("--placement", help=f"{PLACEMENT_HELP}  [default: as recorded]")]


@dataclass(frozen=True)
class RuleOptions:
    """The rules of a running cluster beside its policy; empty: the default, or as it is."""

    placement: Annotated[str, typer.Option("--placement", help=PLACEMENT_HELP)] = ""
    migration: Annotated[str, typer.Option("--migration", help="Rule that moves running jobs.")] = ""
    cpu_share: Annotated[str, typer.Option("--cpu-share", help="Rule that divides the CPUs of a shared node.")] = ""
    reservation: Annotated[str, typer.Option("--reservation", help="Rule that reserves capacity for serving pods.")] = (
        ""
    )
    rate_limit: Annotated[
        float | None, typer.Option("--rate-limit", metavar="SECONDS", min=0, help="Least time between two rounds.")
    ] = None
