"""The nodes of a simulated cluster, from the text that users write."""

from __future__ import annotations

from sterna.backends.simulated.nodes import simulated_nodes
from sterna.errors import UserError
from sterna.experiments.argument_names import naming_arguments
from sterna.model.cluster import Nodes


class Cluster:
    """Nodes of a simulated cluster: `Cluster("80x8")`, mixed sizes `Cluster("10x8,5x4")`, with `racks` in blocks."""

    def __init__(self, spec: str, *, racks: int = 1) -> None:
        with naming_arguments():
            self.nodes = make_nodes(spec, racks)
        self.spec = spec
        self.racks = racks

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Cluster({self.spec!r}, racks={self.racks})"


def make_nodes(spec: str, racks: int) -> Nodes:
    if racks < 1:
        raise UserError(f"--racks {racks}: give at least one rack.")
    nodes = simulated_nodes(spec, racks)
    if racks > len(nodes):
        raise UserError(f"--racks {racks}: --nodes {spec} has fewer nodes than racks; give at most {len(nodes)}.")
    return nodes
