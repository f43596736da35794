"""Cells of the grid, their results, and the file of JSON lines that keeps them between runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

import msgspec

from sterna.experiments.cluster import make_nodes
from sterna.experiments.options import make_scenario
from sterna.experiments.simulation import run_simulation
from tests.bench.grid.workloads import TraceCase, make_workload

UNKNOWN_ENDS = "unknown-ends"
"""Knowledge that is true but for the ends of failed and killed jobs; with any other, those are known."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """One simulation; equal cells have equal results."""

    trace: str
    curve: str
    restart: float
    knowledge: str
    policy: str
    seed: int
    code: str
    """Version of the code, as the user names it."""


class CellResult(msgspec.Struct, frozen=True):
    """Outcome of one cell; times in seconds."""

    cell: Cell
    nodes: str
    jobs: int
    unfinished: int
    mean: float
    p99: float
    stops: int
    resizes: int
    moves: int
    lost_device_hours: float
    """Device-hours of pauses and of lost work, first starts left out."""
    held_device_hours: float
    over_bound: float
    run_seconds: float


def run_cell(cell: Cell, cases: dict[str, TraceCase], data: Path) -> CellResult:
    workload = make_workload(cell.trace, cell.curve, cases, data)
    scenario = make_scenario(
        workload.trace,
        make_nodes(workload.nodes, 1),
        speedups=dict(workload.speedups) or None,
        restart_cost=cell.restart,
        knowledge="true" if cell.knowledge == UNKNOWN_ENDS else cell.knowledge,
        known_ends=cell.knowledge != UNKNOWN_ENDS,
        seed=cell.seed,
    )
    began = perf_counter()
    result = run_simulation(scenario, cell.policy)
    return CellResult(
        cell=cell,
        nodes=workload.nodes,
        jobs=len(result.times.completion),
        unfinished=len(result.unfinished) + len(result.unschedulable),
        mean=result.number("avg_jct_s") or 0.0,
        p99=result.number("p99_jct_s") or 0.0,
        stops=result.counts.preemptions,
        resizes=result.counts.resizes,
        moves=result.counts.migrations,
        lost_device_hours=result.number("lost_device_hours") or 0.0,
        held_device_hours=result.counts.device_seconds / 3600,
        over_bound=result.over_bound or 0.0,
        run_seconds=perf_counter() - began,
    )


def read_results(path: Path) -> dict[Cell, CellResult]:
    """Read the kept results; the last line of an interrupted run may be cut off."""
    if not path.exists():
        return {}
    results = {}
    for line in path.read_bytes().splitlines():
        try:
            result = msgspec.json.decode(line, type=CellResult)
        except msgspec.MsgspecError:
            continue
        results[result.cell] = result
    return results


def append_results(path: Path, results: Iterable[CellResult]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for result in results:
            file.write(msgspec.json.encode(result) + b"\n")
