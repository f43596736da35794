"""`sterna policy`: show or change the rules of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import AsJson
from sterna.cli.parsing.rule_options import RuleOptions
from sterna.errors import UserError

if TYPE_CHECKING:
    from sterna.service.views import PolicyView

app = typer.Typer(help="Show or change the rules of a running cluster.", no_args_is_help=True)

PolicyArgument = Annotated[
    str, typer.Argument(metavar="[POLICY]", help="name or name:key=value; see `sterna policies`.")
]


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
        label = name.replace("_", " ").replace("cpu", "CPU")
        print(f"{label:<18} {rule:g}" if isinstance(rule, float) else f"{label:<18} {rule}")
