"""`sterna version`: print the version."""

from __future__ import annotations

from sterna import __version__
from sterna.cli.parsing.parameters import AsJson


def command(as_json: AsJson = False) -> None:
    """Print the version.

    \b
    Example:
      sterna version --json
    """
    from sterna.cli.render.output import show_json

    if as_json:
        show_json({"version": __version__})
    else:
        print(f"sterna {__version__}")
