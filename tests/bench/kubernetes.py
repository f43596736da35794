"""The operator against a real API server: `python -m tests.bench.kubernetes quick|full`, from the repository's root.

Beside each burst, before and after it, a bare loop creates the same pods with their nodes set: that is the peer, and
what the same machine can do at that moment. Results go to a JSON file and to a table; only errors make it fail.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.kubernetes_client import client_cpu_ms
from tests.bench.kubernetes_cluster import Cluster, a_cluster, an_operator
from tests.bench.kubernetes_load import (
    BareLoop,
    Burst,
    bare_loop,
    burst,
    hopeless_name,
    job_body,
    job_name,
    plain_pod,
)
from tests.bench.kubernetes_restart import OperatorRestartCase, measure_restart
from tests.bench.measurement import Measurement, Report, machine, save, show
from tests.kubernetes.binaries import NotAvailable

GROUPS = ("bare", "client", "burst", "gang", "restart")
GPUS = 8
UNSCHEDULABLE_CODES = 5
"""Jobs that can never run, submitted one a second in a burst."""
PATIENCE_SECONDS = 300.0
SETTLE_SECONDS, IDLE_SECONDS = 10.0, 30.0


@dataclass(frozen=True)
class Case:
    """Sizes of the measurements."""

    jobs: int
    nodes: int
    repeats: int
    gang: int
    restart: OperatorRestartCase


CASES = {
    "quick": Case(400, 50, 1, 64, OperatorRestartCase(200, 4000, 400)),
    "full": Case(4000, 500, 3, 512, OperatorRestartCase(5000, 100_000, 4000)),
}


def main() -> int:
    options = _options()
    began = time.perf_counter()
    measurements: list[Measurement] = []
    try:
        for measurement in _measure(CASES[options.mode], options.only or GROUPS):
            measurements.append(measurement)
    except NotAvailable as error:
        say(str(error))
        return 0
    finally:  # an interrupted run keeps its measurements
        if measurements:
            show(measurements, {})
            save(Report(options.mode, machine(), measurements), options.out)
            say(f"{len(measurements)} measurements in {time.perf_counter() - began:.0f} s, kept in {options.out}")
    return 0


def _measure(case: Case, groups: tuple[str, ...]) -> Iterator[Measurement]:
    if "client" in groups:
        yield from _client(case)
    if "burst" in groups:
        yield from _bursts(case)
    elif "bare" in groups:
        loops = [_bare(case, plain_pod()) for _ in range(case.repeats)]
        yield from _bare_measurements(case, loops)
    if "gang" in groups:
        yield from _gang(case)
    if "restart" in groups:
        yield from measure_restart(case.restart, say)


def _bare(case: Case, template: dict[str, Any]) -> BareLoop:
    with a_cluster(case.nodes, GPUS) as cluster:
        loop = bare_loop(cluster.kubeconfig, template, case.jobs, case.nodes, PATIENCE_SECONDS)
        say(f"bare loop: created in {loop.created_seconds:.1f} s, running in {loop.running_seconds:.1f} s")
        say(f"CPU seconds: {_format_seconds(cluster.cpu_seconds())}")
        return loop


def _bare_measurements(case: Case, loops: list[BareLoop]) -> Iterator[Measurement]:
    note = (
        f"of {len(loops)}; {min(x.running_seconds for x in loops):.1f} to {max(x.running_seconds for x in loops):.1f} s"
    )
    yield Measurement(f"bare loop, {case.jobs} pods created", median(x.created_seconds for x in loops), "s")
    yield Measurement(f"bare loop, {case.jobs} pods running", median(x.running_seconds for x in loops), "s", note=note)


def _client(case: Case) -> Iterator[Measurement]:
    with a_cluster(case.nodes, GPUS, has_kubelets=False) as cluster:
        say(f"the client alone creates {case.jobs} pods")
        milliseconds = client_cpu_ms(cluster.kubeconfig, case.jobs, case.nodes)
    yield Measurement("client CPU a write", milliseconds, "ms", 0.8)


def _bursts(case: Case) -> Iterator[Measurement]:
    loops: list[BareLoop] = []
    bursts: list[Burst] = []
    costs: list[float] = []
    idle: list[Measurement] = []
    template = plain_pod()
    for number in range(case.repeats):
        if number == 0:
            template = _operators_pod(case)
            loops.append(_bare(case, template))
        with a_cluster(case.nodes, GPUS) as cluster, an_operator(cluster) as (operator, _):
            before = operator.cpu_seconds
            seen = _burst(case, cluster)
            bursts.append(seen)
            costs.append(operator.cpu_seconds - before)
            say(f"burst: pods in {seen.pods_seconds:.1f} s, statuses in {seen.statuses_seconds:.1f} s")
            say(f"CPU seconds: operator {costs[-1]:.1f}, {_format_seconds(cluster.cpu_seconds())}")
            if number == case.repeats - 1:
                idle = list(_idle(cluster, lambda: operator.cpu_seconds))
        loops.append(_bare(case, template))
    yield from _bare_measurements(case, loops)
    yield from _burst_measurements(case, loops, bursts, costs)
    yield from idle


def _operators_pod(case: Case) -> dict[str, Any]:
    with a_cluster(1, GPUS) as cluster, an_operator(cluster) as (_, template):
        return template


def _burst(case: Case, cluster: Cluster) -> Burst:
    jobs = [job_body(job_name(number)) for number in range(case.jobs)]
    hopeless = [job_body(hopeless_name(number), gpus=GPUS + 1) for number in range(UNSCHEDULABLE_CODES)]
    return burst(cluster.kubeconfig, jobs, hopeless, case.jobs, PATIENCE_SECONDS)


def _burst_measurements(
    case: Case, loops: list[BareLoop], bursts: list[Burst], costs: list[float]
) -> Iterator[Measurement]:
    bare = median(each.running_seconds for each in loops)
    for what, values, most in (
        ("pods running", [each.pods_seconds for each in bursts], 2.8),
        ("statuses written", [each.statuses_seconds for each in bursts], 3.3),
    ):
        middle, note = median(values), f"{min(values):.1f} to {max(values):.1f} s; at most {most} times the bare loop"
        yield Measurement(f"{case.jobs} jobs, {what}", middle, "s", 60.0, middle / bare, note)
    yield Measurement("operator CPU a job", median(costs) / case.jobs * 1000, "ms", 2.0)
    late = [each for one in bursts for each in one.verdict_seconds]
    note = f"the slowest of {len(late)}; their median {median(late):.2f} s"
    yield Measurement("verdict in a burst", max(late), "s", 2.0, note=note)


def _idle(cluster: Cluster, spent: Callable[[], float]) -> Iterator[Measurement]:
    say(f"idle for {IDLE_SECONDS:g} s")
    time.sleep(SETTLE_SECONDS)
    cpu, writes = spent(), cluster.writes()
    time.sleep(IDLE_SECONDS)
    share = (spent() - cpu) / IDLE_SECONDS * 100
    yield Measurement("idle operator, of a core", share, "%", 1.0)
    yield Measurement("idle operator, writes but for leases", float(cluster.writes() - writes), "", 0.0)


def _gang(case: Case) -> Iterator[Measurement]:
    with a_cluster(case.nodes, GPUS) as cluster, an_operator(cluster):
        say(f"gangs of {case.gang}")
        values = []
        for number in range(min(case.repeats, case.jobs // case.gang)):
            name = f"gang-{number}"
            job = job_body(name, case.gang)
            seen = burst(cluster.kubeconfig, [job], [], case.gang, PATIENCE_SECONDS, name)
            values.append(seen.pods_seconds)
        note = f"{min(values):.2f} to {max(values):.2f} s"
        yield Measurement(f"one gang of {case.gang}, all running", median(values), "s", 5.0, note=note)
        verdict = burst(cluster.kubeconfig, [], [job_body(hopeless_name(0), gpus=GPUS + 1)], 0, PATIENCE_SECONDS)
        yield Measurement("verdict in a quiet cluster", verdict.verdict_seconds[0], "s", 2.0)


def _format_seconds(spent: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items())


def say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the operator; nothing fails for being slow.")
    parser.add_argument("mode", nargs="?", choices=tuple(CASES), default="full", help="how much to measure")
    parser.add_argument("--only", nargs="+", choices=GROUPS, help="only these groups")
    parser.add_argument("--out", type=Path, default=Path("out/bench-kubernetes.json"), help="where the JSON goes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
