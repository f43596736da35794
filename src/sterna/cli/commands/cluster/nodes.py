"""`sterna cordon`, `sterna drain`, `sterna uncordon`: take nodes out of use and back."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.connect.client import ServerUrl, State, client

Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="The nodes.")]


def cordon(names: Names, state: State = None, server: ServerUrl = None) -> None:
    """Let nothing new start on nodes; what runs there goes on.

    \b
    Example:
      sterna cordon node1
    """
    _change(names, "cordon", state, server)


def drain(names: Names, state: State = None, server: ServerUrl = None) -> None:
    """Let nothing new start on nodes, and move away what runs there.

    \b
    Example:
      sterna drain node1
    """
    _change(names, "drain", state, server)


def uncordon(names: Names, state: State = None, server: ServerUrl = None) -> None:
    """Open nodes again.

    \b
    Example:
      sterna uncordon node1
    """
    _change(names, "uncordon", state, server)


def _change(names: list[str], verb: str, state: str | None, server: str | None) -> None:
    cluster = client(state, server)
    for name in names:
        print(f"{name} is {cluster.post('nodes', name, verb)['state']}.")
