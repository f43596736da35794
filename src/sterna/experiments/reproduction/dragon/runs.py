"""Run parameter-server jobs through the real engine, under `dragon` or a default scheduler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import Rules
from sterna.experiments.report.allocation import Span, spans_of
from sterna.experiments.reproduction.dragon.default_scheduler import (
    DEADLOCK_SECONDS,
    STANDSTILL,
    PodByPod,
    without_gangs,
)
from sterna.model.cluster import MILLI, Nodes, ResourceKind, Shape, Shapes
from sterna.wiring import make_rules
from sterna.workloads.published.dragon import NODE_CPUS, PS_CPUS, SPEEDUPS, WORKER_CPUS, Mixture, trace_of

RESTART_SECONDS = 20.0
"""Cost of a start and of a resize: the authors' code of 2019 restarts all pods of a job that grows."""


class Scheduler(Enum):
    DRAGON = "dragon"
    PODS = "default, pod by pod"
    PODS_BY_CHANCE = "default, pods by chance"
    GANGS = "default with gangs"


@dataclass(frozen=True)
class DragonRun:
    elapsed_seconds: float
    """Mean over jobs of the time from submission to end."""
    makespan_seconds: float
    utilization: float
    """Device-seconds of training jobs, as a fraction of all until the last job ended."""
    finished: float
    """Fraction of the jobs that ended."""


def run(mixture: Mixture, seed: int, scheduler: Scheduler, cross_node_penalty: float) -> DragonRun:
    workload = _workload(mixture, seed)
    backend_jobs, rules = _configure(scheduler, workload, seed)
    nodes = _nodes(mixture.nodes)
    backend = SimulatedBackend(
        backend_jobs,
        nodes,
        SimulationConfig(costs=Costs(restart_seconds=RESTART_SECONDS, cross_node_penalty=cross_node_penalty)),
    )
    RoundLoop(backend, rules).run()
    finish = np.array(backend.finish)
    ended = finish < DEADLOCK_SECONDS
    makespan = float(finish.max() - workload.submit[0])
    devices = int(nodes.capacity[ResourceKind.DEVICES].sum()) / MILLI
    trained = sum(
        (span.end_seconds - span.start_seconds) * span.workers
        for span in spans_of(backend.changes)
        if _trains(span, backend_jobs)
    )
    return DragonRun(
        float((finish - workload.submit).mean()), makespan, trained / devices / makespan, float(ended.mean())
    )


def _workload(mixture: Mixture, seed: int) -> Workload:
    worker = Shape(devices=MILLI, cpus=WORKER_CPUS * MILLI, ps=1, ps_cpus=PS_CPUS * MILLI)
    return replace(workload_of(trace_of(mixture, seed), SPEEDUPS), shapes=Shapes((worker,)))


def _configure(scheduler: Scheduler, workload: Workload, seed: int) -> tuple[Workload, Rules]:
    if scheduler is Scheduler.DRAGON:
        return workload, make_rules("dragon", "pack")
    default = make_rules("fifo:preempt=false", "spread")
    if scheduler is Scheduler.GANGS:
        return replace(workload, minimum=workload.request, maximum=workload.request), default
    policy = PodByPod(seed if scheduler is Scheduler.PODS_BY_CHANCE else None)
    return without_gangs(workload), replace(default, policy=policy, is_priced=False)


def _nodes(spec: str) -> Nodes:
    nodes = simulated_nodes(spec)
    capacity = nodes.capacity.copy()
    capacity[ResourceKind.CPUS] = NODE_CPUS * MILLI
    return replace(nodes, capacity=capacity, free=capacity.copy())


def _trains(span: Span, jobs: Workload) -> bool:
    """Return False while the job holds devices but lacks pods."""
    return jobs.curves.speed_of(int(jobs.curve[span.job]), span.workers) > STANDSTILL
