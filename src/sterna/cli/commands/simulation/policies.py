"""`sterna policies`: list all rules."""

from __future__ import annotations

from sterna.cli.parsing.parameters import AsJson


def command(as_json: AsJson = False) -> None:
    """List the rules of every kind, each with its parameters, and the options that take them.

    Policies and placements are for simulations, plans and clusters; migrations, CPU shares and reservations for
    clusters only.

    \b
    Examples:
      sterna policies
      sterna policies --json
    """
    from sterna.cli.render.output import show_json
    from sterna.cli.render.tables import show_rules
    from sterna.planning import rules

    if as_json:
        show_json(rules())
    else:
        show_rules(rules())
