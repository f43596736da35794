"""Admission: nobody is offered more than the cluster could ever hold, so a job that fits nowhere blocks nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot


def max_workers_by_shape(snapshot: Snapshot) -> Ints:
    """How many workers of each shape the empty cluster holds."""
    return np.array(snapshot.nodes.most_workers(snapshot.shapes), dtype=np.int64)


def admit(snapshot: Snapshot) -> Snapshot:
    """The same instant, with every maximum held to what the cluster can hold; below its minimum a job does not run."""
    if snapshot.fits_max_size:
        return snapshot
    jobs = snapshot.jobs
    held = np.maximum(max_workers_by_shape(snapshot)[jobs.shape] + _on_closed_nodes(snapshot), jobs.workers)
    if bool((jobs.maximum <= held).all()):
        return snapshot
    return replace(snapshot, jobs=jobs.with_max_workers(held))


def _on_closed_nodes(snapshot: Snapshot) -> Ints:
    """Workers that sit where nobody new may come: they do not take from what the open nodes hold."""
    count = np.zeros(len(snapshot.jobs), dtype=np.int64)
    is_open = snapshot.nodes.is_open
    if not is_open.all():
        for row in snapshot.jobs.workers.nonzero()[0].tolist():
            count[row] = sum(workers for node, workers in snapshot.assignment_of(row).workers if not is_open[node])
    return count
