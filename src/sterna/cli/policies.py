"""`sterna policies`: what there is to choose from."""

from __future__ import annotations

from sterna.cli.options import AsJson


def command(as_json: AsJson = False) -> None:
    """List policies and placements, each with its parameters.

    \b
    Examples:
      sterna policies
      sterna policies --json
    """
    from sterna.cli.output import show_json
    from sterna.cli.tables import show_rules
    from sterna.service import rules

    if as_json:
        show_json(rules())
    else:
        show_rules(rules())
