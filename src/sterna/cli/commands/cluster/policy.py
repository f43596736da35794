"""`sterna policy`: show or change the rules of a running cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import AsJson
from sterna.errors import UserError

if TYPE_CHECKING:
    from sterna.service.views import PolicyView

app = typer.Typer(help="Show or change the rules of a running cluster.", no_args_is_help=True)

PolicyArgument = Annotated[
    str, typer.Argument(metavar="[POLICY]", help="name or name:key=value; see `sterna policies`.")
]


@dataclass(frozen=True)
class RuleOptions:
    """The rules beside the policy."""

    placement: Annotated[str, typer.Option("--placement", help="Rule that chooses the node of each worker.")] = ""
    migration: Annotated[str, typer.Option("--migration", help="Rule that moves running jobs.")] = ""
    cpu_share: Annotated[str, typer.Option("--cpu-share", help="Rule that divides the CPUs of a shared node.")] = ""
    reservation: Annotated[str, typer.Option("--reservation", help="Rule that reserves capacity for serving pods.")] = (
        ""
    )
    rate_limit: Annotated[
        float | None, typer.Option("--rate-limit", metavar="SECONDS", min=0, help="Least time between two rounds.")
    ] = None


@app.command("get")
@expand_options
def get(cluster: ClusterOptions, as_json: AsJson = False) -> None:
    """Print the rules in force.

    \b
    Example:
      sterna policy get
    """
    _show(cluster.connect().rules(), as_json)


@app.command("set")
@expand_options
def set_(rules: RuleOptions, cluster: ClusterOptions, policy: PolicyArgument = "") -> None:
    """Change rules; those not named stay.

    \b
    Examples:
      sterna policy set elastic-srjf
      sterna policy set --migration specon --cpu-share growth
    """
    from sterna.service.requests import RuleChanges

    changes = RuleChanges(
        policy or None,
        rules.placement or None,
        rules.migration or None,
        rules.cpu_share or None,
        rules.reservation or None,
        rules.rate_limit,
    )
    if changes.is_empty:
        raise UserError(
            "Nothing is to be changed; name a policy, or --placement, --migration, --cpu-share or --reservation."
        )
    _show(cluster.connect().set_rules(changes), False)


def _show(rules: PolicyView, as_json: bool) -> None:
    import msgspec

    document = msgspec.to_builtins(rules)
    if as_json:
        from sterna.cli.render.output import show_json

        show_json(document)
        return
    for name, rule in document.items():
        print(f"{name.replace('_', ' '):<18} {rule:g}" if isinstance(rule, float) else f"{name:<18} {rule}")
