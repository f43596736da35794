"""The 24 jobs of Voda's published experiment, and arrivals like them.

The logs have submit times and device-seconds, not the work of a job, so `trace_of` takes the work of each model as an
argument. Published results are in the study.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from sterna.workloads.domain import FloatColumn
from sterna.workloads.profiles import PROFILES
from sterna.workloads.trace import Trace, make_trace

NODES = "3x4"
"""Nodes and devices of the experiment."""
LEAST, ASKED, MOST = 1, 2, 4
"""Workers of every job."""
EPOCHS: Mapping[str, int] = {"inceptionv3": 50, "resnet50": 50, "vgg16": 50, "transformer": 40}
"""Epochs by model; a job resumes after the last completed one."""


class SubmittedJob(NamedTuple):
    """A job of the logs."""

    name: str
    model: str
    at_seconds: float


@cache
def jobs() -> tuple[SubmittedJob, ...]:
    """Return the jobs in the order of submission."""
    return tuple(SubmittedJob(row["job"], row["model"], float(row["submit_s"])) for row in _rows())


@cache
def device_seconds() -> Mapping[str, float]:
    """Return mean device-seconds of a job by model, in the run under ElasticFIFO."""
    return {row["model"]: float(row["mean_gpu_seconds"]) for row in _rows()}


def _rows() -> list[dict[str, str]]:
    text = (files(__package__) / "voda_poisson24.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def unseen_arrivals(seed: int) -> tuple[SubmittedJob, ...]:
    """Draw another order of the same jobs, with independent arrivals and the same mean gap."""
    random = np.random.default_rng([seed, 24])
    published = jobs()
    gap_seconds = published[-1].at_seconds / (len(published) - 1)
    at_seconds: FloatColumn = np.concatenate([[0.0], random.exponential(gap_seconds, len(published) - 1).cumsum()])
    order = random.permutation(len(published)).tolist()
    return tuple(
        SubmittedJob(f"job{place:02d}-{published[job].model}", published[job].model, round(float(at), 3))
        for place, (job, at) in enumerate(zip(order, at_seconds, strict=True))
    )


def trace_of(submitted: Sequence[SubmittedJob], work_seconds: Mapping[str, float]) -> Trace:
    """Make a trace, given the work of each model in seconds at one worker."""
    return make_trace(
        name=[job.name for job in submitted],
        submit_seconds=[job.at_seconds for job in submitted],
        workers=[ASKED] * len(submitted),
        minimum=[LEAST] * len(submitted),
        maximum=[MOST] * len(submitted),
        duration_seconds=[work_seconds[job.model] / PROFILES[job.model][ASKED - 1] for job in submitted],
        model=[job.model for job in submitted],
        source="voda",
        kind="published",
    )
