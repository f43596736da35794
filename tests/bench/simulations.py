"""Measure whole simulations: time, its growth with the number of jobs, and results of policies.

As a program (`python -m tests.bench.simulations`) it runs the one simulation that standard input describes, so that its
peak memory is its own, and writes what it measured to standard output.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.engine.registry import RuleKind
from sterna.wiring import make_rules, rules_of
from sterna.workloads.trace import Trace
from tests.bench.bare_loop import bare_fifo
from tests.bench.inputs import ELASTIC, fair_devices, is_made_up, pools_of, steady, trace_named
from tests.bench.measurement import Measurement, Say

PLACEMENT = "stay"


class SimulateCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trace: str
    nodes: str
    policy: str
    elastic: bool = False
    pure: bool = False
    """On the Python sources of the compiled modules, as where Sterna was installed without a C compiler."""
    budget_s: float | None = None
    budget_mb: float | None = None
    quick: bool = False


class GrowthCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy: str
    load: float
    jobs: list[int]
    devices: list[int]
    quick_jobs: list[int]
    quick_devices: list[int]


class RestartCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trace: str
    nodes: str
    seconds: list[float]
    quick_policies: list[str]


class PoolCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trace: str
    largest: int
    most_jobs: int
    percentile: float
    rigid: str
    elastic: str
    quick: bool = False


class Run(msgspec.Struct, frozen=True):
    """Measurements of one simulation."""

    wall_seconds: float
    bare_seconds: float
    """What the bare loop took on the same jobs."""
    mean_jct_seconds: float
    peak_mb: float
    rounds: int


def measure_simulation(case: SimulateCase, say: Say) -> Iterator[Measurement]:
    how = f"{' elastic' if case.elastic else ''}{' pure' if case.pure else ''}"
    name = f"simulate {case.trace} {case.policy}{how}"
    say(f"{name} on {case.nodes}")
    run = _in_a_process_of_its_own(case)
    made_up = is_made_up(case.trace)
    note = f"mean completion {run.mean_jct_seconds:,.2f} s, {run.rounds:,} rounds"
    peer = None if case.elastic else run.wall_seconds / run.bare_seconds
    yield Measurement(name, run.wall_seconds, "s", case.budget_s, peer, note, made_up)
    yield Measurement(f"{name} memory", run.peak_mb, "MB", case.budget_mb, is_made_up=made_up)


def measure_growth(case: GrowthCase, is_quick: bool, say: Say) -> Iterator[Measurement]:
    for devices in case.quick_devices if is_quick else case.devices:
        for jobs in case.quick_jobs if is_quick else case.jobs:
            name = f"growth {jobs:,} jobs, {devices:,} devices"
            say(f"{name} ({case.policy}, load {case.load:g})")
            trace = steady(jobs, devices, case.load)
            run = run_benchmark(trace, f"{devices // 8}x8", case.policy)
            note = f"{run.wall_seconds / jobs * 1e6:.0f} us a job"
            yield Measurement(name, run.wall_seconds, "s", None, run.wall_seconds / run.bare_seconds, note)


def measure_restarts(case: RestartCase, is_quick: bool, say: Say) -> Iterator[Measurement]:
    trace = trace_named(case.trace).elastic(*ELASTIC)
    policies = case.quick_policies if is_quick else [info.name for info in rules_of(RuleKind.POLICY)]
    for policy in policies:
        free = 0.0
        for seconds in case.seconds:
            say(f"restart cost {seconds:g} s: {policy} on {case.trace}, elastic")
            run = run_benchmark(trace, case.nodes, policy, Costs(restart_seconds=seconds))
            free = free or run.mean_jct_seconds
            note = f"{run.mean_jct_seconds / free:.3f} of the mean at {case.seconds[0]:g} s"
            name = f"restart {seconds:g} s {policy}"
            yield Measurement(name, run.mean_jct_seconds, "s mean", note=note, is_made_up=is_made_up(case.trace))


def measure_pools(case: PoolCase, say: Say) -> Iterator[Measurement]:
    for whole in pools_of(trace_named(case.trace), case.largest):
        trace = whole.take(range(min(case.most_jobs, len(whole))))
        devices = fair_devices(trace, case.percentile)
        pool = trace.pool[0]
        say(f"virtual cluster {pool}: {len(trace):,} jobs on {devices} devices, {case.elastic} against {case.rigid}")
        nodes = f"{devices // 8}x8"
        stretchy = trace.elastic(*ELASTIC)
        rigid, elastic = (run_benchmark(stretchy, nodes, policy) for policy in (case.rigid, case.elastic))
        slow, fast = rigid.mean_jct_seconds, elastic.mean_jct_seconds
        note = f"{slow:,.0f} s / {fast:,.0f} s, {len(trace):,} jobs, {devices} devices"
        name = f"pool {pool} {case.rigid} over {case.elastic}"
        yield Measurement(name, slow / fast, "x mean", note=note, is_made_up=is_made_up(case.trace))


def run_benchmark(trace: Trace, nodes: str, policy: str, costs: Costs | None = None) -> Run:
    rules = make_rules(policy, PLACEMENT)
    cluster = simulated_nodes(nodes)
    begin = perf_counter()
    backend = SimulatedBackend(workload_of(trace), cluster, SimulationConfig(costs=costs or Costs()))
    controller = RoundLoop(backend, rules)
    controller.run()
    wall = perf_counter() - begin
    spans = np.array(backend.finish) - trace.submit_seconds
    peak = _peak_mb()
    devices = int(cluster.capacity[0].sum() // 1000)
    mean = float(spans[np.isfinite(spans)].mean())
    return Run(wall, _bare_seconds(trace, devices), mean, peak, controller.rounds)


def _peak_mb() -> float:
    """Return the peak of this process alone: on Linux `getrusage` counts its parent too."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _bare_seconds(trace: Trace, devices: int) -> float:
    begin = perf_counter()
    bare_fifo(trace.submit_seconds, trace.workers, trace.duration_seconds, devices)
    return perf_counter() - begin


def _in_a_process_of_its_own(case: SimulateCase) -> Run:
    pure = "from tests.kernel_builds import use_kernels; use_kernels('pure'); " if case.pure else ""
    command = [sys.executable, "-c", f"{pure}from tests.bench.simulations import main; main()"]
    done = subprocess.run(command, input=msgspec.json.encode(case), stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Run)


def main() -> None:
    case = msgspec.json.decode(sys.stdin.buffer.read(), type=SimulateCase)
    trace = trace_named(case.trace)
    run = run_benchmark(trace.elastic(*ELASTIC) if case.elastic else trace, case.nodes, case.policy)
    sys.stdout.buffer.write(msgspec.json.encode(run))


if __name__ == "__main__":
    main()
