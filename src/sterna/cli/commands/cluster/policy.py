"""`sterna policy`: the rules that a running cluster goes by."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.cli.parsing.options import AsJson
from sterna.errors import UserError

app = typer.Typer(help="See or change the rules of a running cluster.", no_args_is_help=True)

Policy = Annotated[str, typer.Argument(metavar="[POLICY]", help="name or name:key=value; see `sterna policies`.")]
Placement = Annotated[str, typer.Option("--placement", help="Which node for each worker.")]
Migration = Annotated[str, typer.Option("--migration", help="Which running worker moves.")]
CpuShare = Annotated[str, typer.Option("--cpu-share", help="How a shared node's CPUs are divided.")]
Reservation = Annotated[str, typer.Option("--reservation", help="Who goes first.")]
RateLimit = Annotated[
    float | None, typer.Option("--rate-limit", metavar="SECONDS", min=0, help="Least time between two rounds.")
]


@app.command("get")
def get(as_json: AsJson = False, state: State = None, server: ServerUrl = None) -> None:
    """Print the rules in force.

    \b
    Example:
      sterna policy get
    """
    _show(client(state, server).get("rules"), as_json)


@app.command("set")
def set_(
    policy: Policy = "",
    placement: Placement = "",
    migration: Migration = "",
    cpu_share: CpuShare = "",
    reservation: Reservation = "",
    rate_limit: RateLimit = None,
    state: State = None,
    server: ServerUrl = None,
) -> None:
    """Change rules; what is not named stays.

    \b
    Examples:
      sterna policy set elastic-srjf
      sterna policy set --migration specon --cpu-share growth
    """
    named = {
        "policy": policy,
        "placement": placement,
        "migration": migration,
        "cpu_share": cpu_share,
        "reservation": reservation,
    }
    value: dict[str, Any] = {name: rule for name, rule in named.items() if rule}
    if rate_limit is not None:
        value["rate_limit_seconds"] = rate_limit
    if not value:
        raise UserError(
            "Nothing is to be changed; name a policy, or --placement, --migration, --cpu-share or --reservation."
        )
    _show(client(state, server).patch("rules", value=value), False)


def _show(rules: dict[str, Any], as_json: bool) -> None:
    if as_json:
        from sterna.cli.render.output import show_json

        show_json(rules)
        return
    for name, rule in rules.items():
        print(f"{name.replace('_', ' '):<18} {rule:g}" if isinstance(rule, float) else f"{name:<18} {rule}")
