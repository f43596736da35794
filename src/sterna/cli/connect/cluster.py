"""`ClusterOptions`: the cluster that a command means, as options, and the connection to it.

The state folder is `--state`, else `$STERNA_STATE`, else `sterna` in the user's data folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.target import KubernetesTarget, find_target

if TYPE_CHECKING:
    from sterna.service.cluster_service import ClusterService

StateOption = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="DIR", help="State folder of a local cluster.  [default: $STERNA_STATE or your data folder]"
    ),
]


@dataclass(frozen=True)
class ClusterOptions:
    """The options of every command that speaks to a running cluster; those for Kubernetes are in `target.py`."""

    state: StateOption = None
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Address of another cluster; token from $STERNA_TOKEN."),
    ] = None

    @property
    def kubernetes(self) -> KubernetesTarget | None:
        """The Kubernetes cluster that the options mean; None: a local cluster or one at an address."""
        return find_target(self.state, self.server)

    def connect(self) -> ClusterService:
        """Connect to the cluster; nothing is sent before the first verb."""
        target = self.kubernetes
        if target is not None:
            # By name: most commands ask a local cluster and must not import the Kubernetes backend.
            cluster: ClusterService = import_module("sterna.cli.connect.kubernetes").connect(target)
            return cluster
        from sterna.cli.connect.rest import AddressEndpoint, RestCluster, SocketEndpoint

        return RestCluster(AddressEndpoint(self.server) if self.server else SocketEndpoint(state_folder(self.state)))


def state_folder(state: str | None) -> Path:
    """Return the state folder of a local cluster."""
    chosen = state or os.environ.get("STERNA_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "sterna"
