"""`sterna delete`: end jobs and forget them."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.connect.client import ServerUrl, State, client

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The jobs.")]


def command(names: Names, state: State = None, server: ServerUrl = None) -> None:
    """Delete jobs: what runs is stopped, after it had its time to save.

    \b
    Example:
      sterna delete train-1 train-2
    """
    for job in client(state, server).delete("jobs", name=list(dict.fromkeys(names))):
        print(f"{job['name']} is deleted.")
