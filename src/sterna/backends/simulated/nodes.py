"""Nodes of a simulated cluster from the text of `--nodes`."""

from __future__ import annotations

import re

import numpy as np

from sterna.errors import UserError
from sterna.model.cluster import MILLI, Nodes

_MAX_NODES = 1_000_000
_MAX_DEVICES = 100_000


def simulated_nodes(spec: str, racks: int = 1) -> Nodes:
    """Parse `80x8` (80 nodes of 8 devices) or `10x8,5x4` (mixed sizes); racks are contiguous blocks of nodes."""
    sizes: list[tuple[int, int]] = []
    for part in spec.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*x\s*([0-9]{1,18})\s*", part)
        if not match:
            raise UserError(
                f"--nodes {spec}: '{part.strip()}' is not of the form COUNTxDEVICES; write 80x8 or 10x8,5x4."
            )
        sizes.append((int(match[1]), int(match[2])))
        if sizes[-1][1] > _MAX_DEVICES:
            raise UserError(
                f"--nodes {spec}: {sizes[-1][1]:,} devices on one node are more than any has; write at most "
                f"{_MAX_DEVICES:,}."
            )
        if not all(sizes[-1]):
            raise UserError(f"--nodes {spec}: a cluster needs at least one node with at least one device.")
    total_nodes = sum(count for count, _ in sizes)
    if total_nodes > _MAX_NODES:
        raise UserError(
            f"--nodes {spec}: {total_nodes:,} nodes are more than the simulator takes; write at most {_MAX_NODES:,}."
        )
    devices = [each for count, each in sizes for _ in range(count)]
    width = len(str(len(devices) - 1))
    total = np.zeros((3, len(devices)), dtype=np.int64)
    total[0] = np.array(devices) * MILLI
    rack = np.arange(len(devices)) * max(1, racks) // len(devices)
    names = tuple(f"node{number:0{width}d}" for number in range(len(devices)))
    return Nodes(names, total, total.copy(), np.ones(len(devices), dtype=np.bool_), rack)
