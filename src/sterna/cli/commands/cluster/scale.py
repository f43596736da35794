"""`sterna scale`: how few and how many workers a job may have."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.errors import UserError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job.")]
Bounds = Annotated[str, typer.Argument(metavar="N|MIN:MAX", help="Its workers: 2, 1:4, 2: or :4.")]


def command(name: Name, workers: Bounds, state: State = None, server: ServerUrl = None) -> None:
    """Change the bounds of a job's workers; the next round goes by them.

    \b
    Examples:
      sterna scale train-1 1:4
      sterna scale train-1 2
    """
    match = re.fullmatch(r"(\d{0,9})(:?)(\d{0,9})", workers.strip(), re.ASCII)
    if match is None or not (match[1] or match[3]):
        raise UserError(f"'{workers}' says no bounds; write the number of workers, or the fewest and the most: 1:4.")
    low, high = match[1], match[3] if match[2] else match[1]
    value = {"minimum": int(low) if low else None, "maximum": int(high) if high else None}
    job = client(state, server).patch("jobs", name, value=value)
    print(f"{name} may have {job['minimum']} to {job['maximum']} workers.")
