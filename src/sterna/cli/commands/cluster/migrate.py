"""`sterna migrate`: move a job to a node."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.connect.client import ServerUrl, State, client

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="Where it should go.")]
ByCheckpoint = Annotated[
    bool, typer.Option("--checkpoint", help="Save, stop and start there, even if it could stay alive.")
]


def command(
    name: Name, node: Node, by_checkpoint: ByCheckpoint = False, state: State = None, server: ServerUrl = None
) -> None:
    """Move a job to a node: in place where that is possible, else by checkpoint.

    \b
    Example:
      sterna migrate train-1 node1
    """
    value = {"node": node, "by_checkpoint": by_checkpoint}
    job = client(state, server).post("jobs", name, "migrate", value=value)
    print(f"{name} goes to {node}; it has moved {job['moves']} times so far.")
