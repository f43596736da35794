"""Admission: each job is capped at what the empty cluster can hold, so that a job that fits nowhere blocks no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot


def max_workers_by_shape(snapshot: Snapshot) -> Ints:
    """Largest number of workers of each shape that the empty cluster holds."""
    return np.array(snapshot.nodes.most_workers(snapshot.shapes), dtype=np.int64)


def admit(snapshot: Snapshot) -> Snapshot:
    """Cap each job's maximum at what the cluster can hold; a job capped below its minimum does not run."""
    if snapshot.fits_max_size:
        return snapshot
    jobs = snapshot.jobs
    caps = np.maximum(max_workers_by_shape(snapshot)[jobs.shape] + _workers_on_closed_nodes(snapshot), jobs.workers)
    if bool((jobs.maximum <= caps).all()):
        return snapshot
    return replace(snapshot, jobs=jobs.with_max_workers(caps))


def _workers_on_closed_nodes(snapshot: Snapshot) -> Ints:
    """Each job's workers on nodes that accept no new workers; they use no capacity of the open nodes."""
    count = np.zeros(len(snapshot.jobs), dtype=np.int64)
    is_open = snapshot.nodes.is_open
    if not is_open.all():
        for row in snapshot.jobs.workers.nonzero()[0].tolist():
            count[row] = sum(workers for node, workers in snapshot.assignment_of(row).workers if not is_open[node])
    return count
