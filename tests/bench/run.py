"""Run the benchmarks: `python -m tests.bench.run quick|full [--only decide]`, from the root of the repository.

Cases and budgets are in `cases.yaml`. Results go to a JSON file and, with a stored baseline and the bare loop of the
same run, to a table. Only errors make it fail, never time, because times depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import msgspec

from tests.bench.decisions import DecideCase, measure_decisions
from tests.bench.measurement import Measurement, Report, baseline_values, machine, save, show
from tests.bench.progress import ProgressCase, measure_progress
from tests.bench.simulations import (
    GrowthCase,
    PoolCase,
    RestartCase,
    SimulateCase,
    measure_growth,
    measure_pools,
    measure_restarts,
    measure_simulation,
)

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
GROUPS = ("decide", "progress", "simulate", "growth", "restarts", "pools")
REPEAT, QUICK_REPEAT = 20, 5


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decide: list[DecideCase]
    progress: ProgressCase
    simulate: list[SimulateCase]
    growth: GrowthCase
    restarts: RestartCase
    pools: PoolCase


def main() -> None:
    options = _options()
    cases = msgspec.yaml.decode((HERE / "cases.yaml").read_bytes(), type=Cases)
    begin = perf_counter()
    measurements: list[Measurement] = []
    report = Report(options.mode, machine(), measurements)
    try:
        for measurement in _measure(cases, options.mode == "quick", options.only or GROUPS):
            measurements.append(measurement)
    finally:  # an interrupted run keeps its measurements
        show(measurements, baseline_values(BASELINE))
        save(report, options.out)
        say(", ".join(f"{what}: {value}" for what, value in report.machine.items()))
        say(f"{len(measurements)} measurements in {perf_counter() - begin:.0f} s, kept in {options.out}")
    if options.keep:
        save(report, BASELINE)
        say("kept as the baseline")


def _measure(cases: Cases, is_quick: bool, groups: tuple[str, ...]) -> Iterator[Measurement]:
    if "decide" in groups:
        for decide_case in cases.decide:
            if decide_case.quick or not is_quick:
                yield from measure_decisions(decide_case, QUICK_REPEAT if is_quick else REPEAT, say)
    if "progress" in groups:
        yield from measure_progress(cases.progress, QUICK_REPEAT if is_quick else REPEAT, say)
    if "simulate" in groups:
        for simulate_case in cases.simulate:
            if simulate_case.quick or not is_quick:
                yield from measure_simulation(simulate_case, say)
    if "growth" in groups:
        yield from measure_growth(cases.growth, is_quick, say)
    if "restarts" in groups:
        yield from measure_restarts(cases.restarts, is_quick, say)
    if "pools" in groups and (cases.pools.quick or not is_quick):
        yield from measure_pools(cases.pools, say)


def say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Sterna; nothing fails for being slow.")
    parser.add_argument("mode", nargs="?", choices=("quick", "full"), default="full", help="how much to measure")
    parser.add_argument("--only", nargs="+", choices=GROUPS, help="only these groups of cases")
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"), help="where the JSON goes")
    parser.add_argument("--keep", action="store_true", help="keep the result as the baseline to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    main()
