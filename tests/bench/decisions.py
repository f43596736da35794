"""Measure one decision: observe, decide with placement, check; on a cold cluster and after a few changes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

import msgspec

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.engine.registry import RuleKind
from sterna.model.plan import Decision, Plan
from sterna.wiring import make_rules, rules_of
from sterna.workloads.trace import Trace
from tests.bench.inputs import waiting_jobs_trace
from tests.bench.measurement import Measurement, Say

COME_AT_SECONDS = 100.0
"""Before any job has passed a threshold of Tiresias, so that newcomers are all that is new."""
PLACEMENT = "stay"


class DecideCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    jobs: int
    nodes: int
    cold_ms: dict[str, float] = {}
    few_ms: dict[str, float] = {}
    quick: bool = False

    def budget(self, state: str, policy: str) -> float | None:
        budgets = self.cold_ms if state == "cold" else self.few_ms
        return budgets.get(policy, budgets.get("default"))


def measure_decisions(case: DecideCase, repeat: int, say: Say) -> Iterator[Measurement]:
    trace = waiting_jobs_trace(case.jobs, case.jobs // 100, COME_AT_SECONDS)
    for info in rules_of(RuleKind.POLICY):
        say(f"decide {case.name}: {info.name}, {case.jobs:,} jobs on {case.nodes:,} nodes of 8")
        rules = make_rules(info.name, PLACEMENT)
        backend = make_benchmark_backend(trace, case.nodes)
        yield _measure(case, backend, rules, "cold", info.name, repeat)
        apply_cold_plan(backend, rules)
        yield _measure(case, backend, rules, "few", info.name, repeat)


def _measure(
    case: DecideCase, backend: SimulatedBackend, rules: Rules, state: str, policy: str, repeat: int
) -> Measurement:
    plan = _decide(backend, rules)
    taken = []
    for _ in range(repeat):
        begin = perf_counter()
        plan = _decide(backend, rules)
        taken.append((perf_counter() - begin) * 1000)
    budget = case.budget(state, policy)
    note = f"{len(plan):,} actions, slowest {max(taken):.1f} ms"
    return Measurement(f"decide {case.name} {state} {policy}", median(taken), "ms", budget, note=note)


def _decide(backend: SimulatedBackend, rules: Rules) -> Plan:
    snapshot = backend.observe()
    plan = decide(snapshot, rules).plan
    check(plan, snapshot)
    return plan


def apply_cold_plan(backend: SimulatedBackend, rules: Rules) -> None:
    """Carry the cold plan out, then go to the moment when some jobs have ended and the newcomers have come."""
    backend.apply(Decision(_decide(backend, rules)))
    while backend.now < COME_AT_SECONDS:
        backend.wait(COME_AT_SECONDS)


def make_benchmark_backend(trace: Trace, nodes: int) -> SimulatedBackend:
    return SimulatedBackend(workload_of(trace), simulated_nodes(f"{nodes}x8"))
