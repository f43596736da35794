"""Least time and least device time that each job of a simulation needs under any policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import MILLI, Bools, Ints, Nodes, ResourceKind
from sterna.model.speedup import Floats


@dataclass(frozen=True, kw_only=True)
class JobDemand:
    """One entry per simulated job in submit order; every time includes the first start."""

    request_seconds: Floats
    """Run time alone with the requested workers."""
    alone_seconds: Floats
    """Run time alone with the workers, within its bounds and the cluster, at which it is fastest."""
    device_seconds: Floats
    """Least device time: speed-up is concave, so a device is used best at the minimum number of workers."""
    start_device_seconds: Floats
    """Part of `device_seconds` that its first start takes."""
    start_seconds: float
    """Time without progress of each start."""
    devices: int
    """Devices of the cluster."""

    def take(self, rows: Ints | Bools) -> JobDemand:
        """Select jobs."""
        return JobDemand(
            request_seconds=self.request_seconds[rows],
            alone_seconds=self.alone_seconds[rows],
            device_seconds=self.device_seconds[rows],
            start_device_seconds=self.start_device_seconds[rows],
            start_seconds=self.start_seconds,
            devices=self.devices,
        )


def demand_of(workload: Workload, nodes: Nodes, costs: Costs) -> JobDemand:
    """Compute the demand of every job; all of them must fit the cluster at their minimum."""
    most = np.array(nodes.most_workers(workload.shapes), dtype=np.int64)[workload.shape]
    per_worker = np.array([shape.devices for shape in workload.shapes.rows])[workload.shape] / MILLI
    held = workload.minimum * per_worker

    def run_seconds(workers: Ints) -> Floats:
        seconds: Floats = workload.work / workload.curves.speed(workload.curve, workers)
        return seconds

    start = costs.restart_seconds
    return JobDemand(
        request_seconds=start + run_seconds(workload.request),
        alone_seconds=start + run_seconds(np.minimum(workload.maximum, most)),
        device_seconds=held * (start + run_seconds(workload.minimum)),
        start_device_seconds=held * start,
        start_seconds=start,
        devices=int(nodes.capacity[ResourceKind.DEVICES].sum()) // MILLI,
    )
