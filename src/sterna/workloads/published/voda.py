"""The 24 jobs of Voda's published experiment, and arrivals like them.

The logs say when each job was submitted and what it held, not how much work it was: that is for the reader to infer, so
a trace is made only once the work of each model is given. Results that were published are with the study, not here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from sterna.workloads.domain import Floats
from sterna.workloads.profiles import PROFILES
from sterna.workloads.trace import Trace, make_trace

NODES = "3x4"
"""Nodes and devices of the experiment."""
LEAST, ASKED, MOST = 1, 2, 4
"""Workers of every job."""
EPOCHS: Mapping[str, int] = {"inceptionv3": 50, "resnet50": 50, "vgg16": 50, "transformer": 40}
"""Passes over the data by model; a job resumes at the last one that it completed."""


class Submitted(NamedTuple):
    """A job as the logs know it."""

    name: str
    model: str
    at_seconds: float


@cache
def jobs() -> tuple[Submitted, ...]:
    """In the order of submission."""
    return tuple(Submitted(row["job"], row["model"], float(row["submit_s"])) for row in _rows())


@cache
def device_seconds() -> Mapping[str, float]:
    """What a job of each model held on average in the run under ElasticFIFO."""
    return {row["model"]: float(row["mean_gpu_seconds"]) for row in _rows()}


def _rows() -> list[dict[str, str]]:
    text = (files(__package__) / "voda_poisson24.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def unseen_arrivals(seed: int) -> tuple[Submitted, ...]:
    """The same jobs in an order of their own, coming independently of one another with the same mean gap."""
    random = np.random.default_rng([seed, 24])
    published = jobs()
    gap_seconds = published[-1].at_seconds / (len(published) - 1)
    at_seconds: Floats = np.concatenate([[0.0], random.exponential(gap_seconds, len(published) - 1).cumsum()])
    order = random.permutation(len(published)).tolist()
    return tuple(
        Submitted(f"job{place:02d}-{published[job].model}", published[job].model, round(float(at), 3))
        for place, (job, at) in enumerate(zip(order, at_seconds, strict=True))
    )


def trace_of(submitted: Sequence[Submitted], work_seconds: Mapping[str, float]) -> Trace:
    """The jobs as a trace, given the work of each model in seconds at one worker."""
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
