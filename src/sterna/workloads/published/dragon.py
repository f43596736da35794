"""Parameter-server jobs as in DRAGON's evaluation as far as it is known, and variations of what is not.

Known from the authors' code: two nodes with GPUs, ResNet and AlexNet by parameter server, from `min-instances` to
`max-instances` workers (1 and 4 in its examples), a fixed number of steps. Not known, and drawn here from a seed: the
GPUs of a node, the number of jobs, their arrivals, requests and run times, and the simulated cluster. AlexNet's
speed-up is taken to be VGG's, the nearest published measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sterna.workloads.domain import FloatColumn
from sterna.workloads.profiles import PROFILES
from sterna.workloads.trace import Trace, make_trace, numbered_names

SPEEDUPS: Mapping[str, tuple[float, ...]] = {"resnet": PROFILES["resnet50"], "alexnet": PROFILES["vgg16"]}

WORK_SECONDS: Mapping[str, float] = {"resnet": 3600.0, "alexnet": 1200.0}
"""Median work of a job, at one worker."""
_SPREAD = 0.5
"""Standard deviation of the logarithm of a job's work."""

WORKER_CPUS, PS_CPUS, NODE_CPUS = 2, 2, 64
"""CPUs of a worker, a parameter server and a node; enough that parameter servers never lack them."""


@dataclass(frozen=True)
class Mixture:
    """Cluster, arrivals and requests of one workload."""

    name: str
    nodes: str
    jobs: int
    mean_gap_seconds: float
    asked: tuple[int, ...]
    """Requests, drawn uniformly."""
    least: int | None = 1
    """Least workers; None: the request."""
    most: int | None = 4


MIXTURES = (
    Mixture("2 x 4 GPUs, jobs alone, 1 of 4 workers asked for", "2x4", 30, 3600.0, (1,)),
    Mixture("2 x 4 GPUs, half idle, 2 of 4 workers asked for", "2x4", 30, 1200.0, (2,)),
    Mixture("2 x 4 GPUs, crowded, 1, 2 or 4 of 4 workers asked for", "2x4", 30, 60.0, (1, 2, 4)),
    Mixture("16 x 4 GPUs, crowded, 1 to 8 of 8 workers asked for", "16x4", 100, 40.0, (1, 2, 4, 8), most=8),
    Mixture("16 x 4 GPUs, crowded, rigid jobs", "16x4", 100, 40.0, (2, 4, 8), least=None, most=None),
)


def trace_of(mixture: Mixture, seed: int) -> Trace:
    random = np.random.default_rng([seed, 2019])
    count = mixture.jobs
    at_seconds: FloatColumn = np.concatenate([[0.0], random.exponential(mixture.mean_gap_seconds, count - 1).cumsum()])
    models = [sorted(SPEEDUPS)[pick] for pick in random.integers(len(SPEEDUPS), size=count).tolist()]
    asked = random.choice(mixture.asked, count)
    work = random.lognormal(0.0, _SPREAD, count) * [WORK_SECONDS[model] for model in models]
    speed = [SPEEDUPS[model][min(each, len(SPEEDUPS[model])) - 1] for model, each in zip(models, asked, strict=True)]
    return make_trace(
        name=numbered_names(count),
        submit_seconds=np.round(at_seconds, 3),
        workers=asked,
        minimum=asked if mixture.least is None else np.minimum(asked, mixture.least),
        maximum=asked if mixture.most is None else np.maximum(asked, mixture.most),
        duration_seconds=np.round(work / speed, 3),
        model=models,
        source=mixture.name,
        kind="published",
    )
