"""`sterna delete`: delete jobs."""

from __future__ import annotations

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobNames


@expand_options
def command(names: JobNames, cluster: ClusterOptions) -> None:
    """Delete jobs: running ones are stopped after their grace period to save.

    \b
    Example:
      sterna delete train-1 train-2
    """
    for job in cluster.connect().delete(list(dict.fromkeys(names))):
        print(f"{job.name} is deleted.")
