"""`sterna cordon`, `sterna drain`, `sterna uncordon`: take nodes out of service and back."""

from __future__ import annotations

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import NodeNames


@expand_options
def cordon(names: NodeNames, cluster: ClusterOptions) -> None:
    """Start no more jobs on nodes; those that run there continue.

    \b
    Example:
      sterna cordon node1
    """
    service = cluster.connect()
    for name in names:
        print(f"{name} is {service.cordon(name).state}.")


@expand_options
def drain(names: NodeNames, cluster: ClusterOptions) -> None:
    """Cordon nodes and move their jobs away.

    \b
    Example:
      sterna drain node1
    """
    service = cluster.connect()
    for name in names:
        print(f"{name} is {service.drain(name).state}.")


@expand_options
def uncordon(names: NodeNames, cluster: ClusterOptions) -> None:
    """Start jobs on nodes again.

    \b
    Example:
      sterna uncordon node1
    """
    service = cluster.connect()
    for name in names:
        print(f"{name} is {service.uncordon(name).state}.")
