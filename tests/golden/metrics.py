"""Committed metrics of every policy on one small trace; a diff of them is reviewed like code.

`python -m tests.golden.metrics` updates them. The trace is a day of a small lab, generated once and kept as a file.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.engine.registry import RuleKind
from sterna.wiring import make_rules, rules_of
from sterna.workloads.load import load_trace

HERE = Path(__file__).resolve().parent
TRACE = HERE / "lab.csv"
COMMITTED = HERE / "lab.json"

Metrics = dict[str, float]


def settings() -> list[tuple[str, str, float]]:
    """Policy, placement, restart cost: each policy on counted devices, and on nodes where changes and distance cost."""
    policies = [info.name for info in rules_of(RuleKind.POLICY)]
    placements = [info.name for info in rules_of(RuleKind.PLACEMENT) if info.name != "none"]
    found = [(policy, "none", 0.0) for policy in policies]
    found += [(policy, "stay", 30.0) for policy in policies]
    return found + [("elastic-fifo", placement, 30.0) for placement in placements if placement != "stay"]


def measure_metrics(policy: str, placement: str, restart_seconds: float) -> Metrics:
    workload = workload_of(load_trace(TRACE))
    costs = Costs(restart_seconds=restart_seconds, cross_node_penalty=0.1 if restart_seconds else 0.0)
    backend = SimulatedBackend(workload, simulated_nodes("3x4,2x2", racks=2), SimulationConfig(costs=costs))
    RoundLoop(backend, make_rules(policy, placement)).run()
    took = np.array(backend.finish) - workload.submit
    return {
        "mean_jct_s": round(float(took.mean()), 3),
        "longest_jct_s": round(float(took.max()), 3),
        "makespan_s": round(max(backend.finish) - float(workload.submit[0]), 3),
        "mean_wait_s": round(float(np.mean(backend.waited)), 3),
        "device_hours": round(backend.counters.device_seconds / 3600, 4),
        "preemptions": backend.counters.preemptions,
        "resizes": backend.counters.resizes,
        "migrations": backend.counters.migrations,
    }


def label(policy: str, placement: str, restart_seconds: float) -> str:
    return f"{policy}, {placement}, restart {restart_seconds:g} s"


def committed_metrics() -> dict[str, Metrics]:
    found: dict[str, Metrics] = json.loads(COMMITTED.read_text())
    return found


def main() -> None:
    found = {label(*each): measure_metrics(*each) for each in settings()}
    COMMITTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
