"""The worth of a device to each job: how many jobs wait less for every device-second that it saves.

A device-second of work delays the jobs that are served after it. Those are the jobs at hand that are at least as large,
and those still to come; sizes are heavy-tailed, so the share of future jobs above a size falls with its square root.
"""

from __future__ import annotations

import numpy as np

from sterna.model.cluster import MILLI
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Floats

_FLATTENING = 0.5
"""Exponent of the number of delayed jobs. With 1 a shorter job takes the growth of every longer one; with 0 all devices
are worth the same. One half keeps devices where speed-ups are steep; it follows from speed-ups near n^0.8."""

_SHORTEST_SECONDS = 1.0
"""Lower bound of a remaining time, so that a job about to end has a finite worth."""

_UNKNOWN_SECONDS = 600.0
"""Expected remaining time of a job of unknown length that has not run, while no job has finished."""


def remaining_seconds(snapshot: Snapshot) -> Floats:
    """Return the expected remaining time of each job at its minimum."""
    jobs = snapshot.jobs
    speed = snapshot.curves.speed(jobs.curve, jobs.minimum)
    seconds = jobs.remaining / np.maximum(speed, 1e-9)
    unknown = np.isnan(seconds)
    if unknown.any():
        seconds = np.where(unknown, _expected_seconds(snapshot), seconds)
    return np.maximum(seconds, _SHORTEST_SECONDS)


def _expected_seconds(snapshot: Snapshot) -> Floats:
    """Estimate the remaining time of jobs of unknown length from their service so far: the median of what longer jobs
    of the past still needed at that point; beyond the longest, as much again."""
    jobs, finished = snapshot.jobs, snapshot.finished_service
    devices = np.maximum(snapshot.minimum_cost, 1) / MILLI
    served = jobs.attained
    more = np.maximum(served, _UNKNOWN_SECONDS * devices)
    if len(finished):
        first = finished.searchsorted(served, "right")
        median = finished[np.minimum((first + len(finished)) // 2, len(finished) - 1)] - served
        more = np.where(first < len(finished), median, more)
    return more / devices


def device_worth(snapshot: Snapshot, seconds: Floats) -> Floats:
    """Return the worth of a device to each job that needs this many more seconds at its minimum."""
    size = seconds * np.maximum(snapshot.minimum_cost, 1) / MILLI
    ascending = np.sort(size)
    not_smaller = len(size) - ascending.searchsorted(size)
    return (not_smaller / np.sqrt(size)) ** _FLATTENING
