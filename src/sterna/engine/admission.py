"""Admission: nobody is offered more than the cluster could ever hold, so a job that fits nowhere blocks nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot


def most_by_shape(snapshot: Snapshot) -> Ints:
    """How many workers of each shape the empty cluster holds."""
    return np.array(snapshot.nodes.most_workers(snapshot.shapes), dtype=np.int64)


def admitted(snapshot: Snapshot) -> Snapshot:
    """The same instant, with every maximum held to what the cluster can hold; below its minimum a job does not run."""
    if snapshot.widest <= min(snapshot.nodes.most_workers(snapshot.shapes)):
        return snapshot
    most = most_by_shape(snapshot)
    jobs = snapshot.jobs
    held = np.maximum(most[jobs.shape], jobs.workers)
    if bool((jobs.maximum <= held).all()):
        return snapshot
    return replace(snapshot, jobs=jobs.capped(held))
