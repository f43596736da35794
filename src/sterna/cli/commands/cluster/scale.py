"""`sterna scale`: change the bounds of a job's workers."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobName
from sterna.errors import UserError

Bounds = Annotated[str, typer.Argument(metavar="N|MIN:MAX", help="Number of workers: 2, 1:4, 2: or :4.")]


@expand_options
def command(name: JobName, workers: Bounds, cluster: ClusterOptions) -> None:
    """Change the minimum and maximum of a job's workers, from the next round on.

    \b
    Examples:
      sterna scale train-1 1:4
      sterna scale train-1 2
    """
    match = re.fullmatch(r"(\d{0,9})(:?)(\d{0,9})", workers.strip(), re.ASCII)
    if match is None or not (match[1] or match[3]):
        raise UserError(f"'{workers}' says no bounds; write the number of workers, or the fewest and the most: 1:4.")
    low, high = match[1], match[3] if match[2] else match[1]
    job = cluster.connect().scale(name, int(low) if low else None, int(high) if high else None)
    print(f"{name} may have {job.minimum} to {job.maximum} workers.")
