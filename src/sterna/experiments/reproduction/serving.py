"""Serving pods on a full cluster: time to capacity, and the cost to training.

There are no published figures. A day of training with a backlog and serving pods all day, under each reservation rule.
Times are seconds from pending to bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.serving_pods import ServingBackend, ServingLoad
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Figure, Reproduction, Row
from sterna.model.cluster import MILLI, Shape
from sterna.model.speedup import Floats
from sterna.wiring import make_rules
from sterna.workloads.generate import Mix, poisson

DAY_SECONDS = 86_400.0
NODES = "16x8"
PODS_A_DAY = 240
POD_SECONDS = 1200.0
RELEASE_SECONDS = 30.0
"""Time that a worker takes to save before it frees its devices."""
COSTS = Costs(restart_seconds=30.0, rescale_seconds=5.0)

POLICIES = ("elastic-fifo", "dragon")
LOADS = (("full", 260.0), ("queued", 86.4))
"""Mean seconds between jobs: `full` fills the cluster with hardly a job waiting, `queued` keeps a backlog."""
MOST_SEEDS = 5
"""Upper bound on seeds; each has a day of pods, so more only take longer."""
RESERVATIONS = (
    ("pods left alone", "none"),
    ("training shrinks", "serving:preempt=false"),
    ("it shrinks or stops", "serving"),
)


class Day(NamedTuple):
    """Measurements of one simulated day."""

    waits: Floats
    """Seconds until each pod was bound, or until the end of the day."""
    work: float
    """Completed training, in seconds at one worker."""
    served: float
    """Device-seconds that serving pods used."""


def reproduce(seeds: int, progress: ProgressCallback | None = None) -> Reproduction:
    rows: list[Row] = []
    waits: dict[str, list[Floats]] = {}
    seeds = min(seeds, MOST_SEEDS)
    cases = [(policy, load, gap) for load, gap in LOADS for policy in POLICIES]
    done, whole = 0, len(cases) * seeds * (1 + len(RESERVATIONS))
    for policy, load, gap in cases:
        days: dict[str, list[tuple[Day, Day]]] = {name: [] for name, _ in RESERVATIONS}
        for seed in range(seeds):
            alone = a_day(policy, "none", seed, gap, pods=0)
            for name, reservation in RESERVATIONS:
                days[name].append((a_day(policy, reservation, seed, gap), alone))
            done += 1 + len(RESERVATIONS)
            if progress is not None:
                progress(done, whole)
        for name, pairs in days.items():
            waits[f"{load}, {policy}: {name}"] = [day.waits for day, _ in pairs]
            rows += _rows(f"{load}, {policy}: {name}", pairs)
    return Reproduction(
        "serving",
        "How long does a serving pod wait for room on a cluster that trains at full load, and what does training pay?",
        rows,
        (
            f"{PODS_A_DAY} pods of one or two devices a day, {POD_SECONDS / 60:g} minutes each, on {NODES} under "
            "elastic training. Full: hardly a job waits; queued: some always do.",
            f"A start costs {COSTS.restart_seconds:g} s, a resize {COSTS.resize_seconds:g} s, and a worker that leaves "
            f"frees its devices after {RELEASE_SECONDS:g} s.",
            "Left alone, pods still get every device that falls free before training does, which no real "
            "cluster promises them.",
            "The last row of a case is what training would lose if pods took nothing but the devices they use.",
        ),
        lambda: (_figure(waits),),
    )


def a_day(policy: str, reservation: str, seed: int, gap_seconds: float, pods: int = PODS_A_DAY) -> Day:
    trace = poisson(
        jobs=int(1.5 * DAY_SECONDS / gap_seconds),
        mean_gap_seconds=gap_seconds,
        seed=seed,
        mix=Mix(mean_duration_seconds=9000.0, duration_spread=1.0, workers={2: 1.0, 4: 1.0}, least=0.5, most=2.0),
    )
    training = SimulatedBackend(workload_of(trace), simulated_nodes(NODES), SimulationConfig(costs=COSTS))
    loads = serving_pods(pods, seed)
    backend = ServingBackend(training, loads, RELEASE_SECONDS, DAY_SECONDS)
    RoundLoop(backend, make_rules(policy, "stay", reservation=reservation)).run()
    ends = np.array([backend.bound_at.get(load.name, DAY_SECONDS) for load in loads])
    begins = np.array([load.at_seconds for load in loads])
    spans = np.minimum(np.array([load.for_seconds for load in loads]), DAY_SECONDS - ends)
    devices = np.array([load.shape.devices / MILLI for load in loads])
    left = float(training.observe().jobs.remaining.sum())
    work = training.jobs.work[training.jobs.submit <= DAY_SECONDS]
    return Day(ends - begins, float(work.sum()) - left, float((spans * devices).sum()))


def serving_pods(count: int, seed: int) -> list[ServingLoad]:
    """Draw pods that arrive uniformly over the day without its first and last hour."""
    random = np.random.default_rng((seed, 7))
    at = np.sort(random.uniform(3600.0, DAY_SECONDS - 3600.0, count))
    spans = random.exponential(POD_SECONDS, count)
    devices = random.choice((1, 2), count)
    return [
        ServingLoad(f"pod-{number:04d}", float(begin), float(span), Shape(devices=int(each) * MILLI))
        for number, (begin, span, each) in enumerate(zip(at, spans, devices, strict=True))
    ]


def _rows(case: str, pairs: Sequence[tuple[Day, Day]]) -> list[Row]:
    every = np.concatenate([day.waits for day, _ in pairs])
    lost = interval_of([100 * (day.work / alone.work - 1) for day, alone in pairs])
    used = -100 * float(np.mean([day.served for day, _ in pairs])) / (DAY_SECONDS * 128)
    return [
        Row(case, "time to room, p50, s", None, None, float(np.percentile(every, 50)), None),
        Row(case, "time to room, p99, s", None, None, float(np.percentile(every, 99)), None),
        Row(case, "training done, change in %", None, None, lost.mean, None, lost.describe(" %")),
        Row(case, "devices used by pods, as change in %", None, None, used, None),
    ]


def _figure(waits: dict[str, list[Floats]]) -> Figure:
    parts = np.linspace(0, 100, 101)
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": np.maximum(np.percentile(np.concatenate(each), parts), 1.0).tolist(),
            "y": parts.tolist(),
        }
        for name, each in waits.items()
    ]
    layout = {
        "xaxis": {"type": "log", "title": {"text": "seconds to room (at least 1)"}},
        "yaxis": {"title": {"text": "% of serving pods"}},
    }
    return Figure(
        "Time to room for serving pods",
        "Further left is sooner. Where training shrinks, nearly every pod has room as soon as a worker has saved.",
        {"data": lines, "layout": layout},
    )
