"""`sterna migrate`: move a job to a node."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobName, NodeName

ByCheckpoint = Annotated[
    bool,
    typer.Option("--checkpoint", help="Save, stop and start on the node, even if the job could move while it runs."),
]


@expand_options
def command(name: JobName, node: NodeName, cluster: ClusterOptions, by_checkpoint: ByCheckpoint = False) -> None:
    """Move a job to a node: while it runs where that is possible, else by checkpoint.

    \b
    Example:
      sterna migrate train-1 node1
    """
    job = cluster.connect().migrate(name, node, by_checkpoint)
    print(f"{name} goes to {node}; it has moved {job.moves} times so far.")
