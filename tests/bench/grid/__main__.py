"""Run cells of the grid that are not kept yet, and print the table.

    python -m tests.bench.grid --traces b1k helios --restarts 30 --policies afs-l srjf --code before --jobs 2
    python -m tests.bench.grid --random 50 --restarts 30 --policies afs-l ./mine.py --code try-3

Results are appended to a file of JSON lines; a cell that is in it is not run again, so an interrupted run continues.
`--code` names the version of the code and is part of the key: give another one after a change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import msgspec

from tests.bench.grid.cells import Cell, CellResult, append_results, read_results, run_cell
from tests.bench.grid.table import markdown_table
from tests.bench.grid.workloads import OWN, RANDOM, TraceCase, curves_of
from tests.published import LARGE

HERE = Path(__file__).resolve().parent


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    traces: dict[str, TraceCase]
    curves: list[str]
    restarts: list[float]
    knowledge: list[str]
    policies: list[str]


def main() -> None:
    grid = msgspec.yaml.decode((HERE / "grid.yaml").read_bytes(), type=Grid)
    options = _options(grid)
    known = read_results(options.results)
    cells = list(_cells(grid, options))
    missing = [cell for cell in cells if cell not in known]
    _say(f"{len(cells)} cells, {len(cells) - len(missing)} of them kept in {options.results}")
    try:
        for result in _run(missing, grid.traces, options.data, options.jobs):
            append_results(options.results, [result])
            known[result.cell] = result
    finally:  # an interrupted run shows what it has
        print(markdown_table(known[cell] for cell in cells if cell in known))


def _cells(grid: Grid, options: argparse.Namespace) -> Iterator[Cell]:
    for trace in [*_present_traces(grid, options), *_random_traces(options)]:
        case = grid.traces.get(trace)
        curves = curves_of(case, grid.curves)
        for curve in curves if curves == [OWN] else [each for each in curves if each in options.curves]:
            for restart in options.restarts:
                for knowledge in options.knowledge:
                    for policy in options.policies:
                        yield Cell(trace, curve, restart, knowledge, policy, options.seed, options.code)


def _present_traces(grid: Grid, options: argparse.Namespace) -> list[str]:
    if options.traces is None and options.random:
        return []
    names = options.traces or list(grid.traces)
    for name in names:
        if name not in grid.traces:
            sys.exit(f"--traces {name}: the grid has no such trace; it has {', '.join(grid.traces)}.")
    present = [name for name in names if (options.data / grid.traces[name].file).is_file()]
    for name in names:
        if name not in present:
            _say(f"left out {name}: {options.data / grid.traces[name].file} is not there; choose a folder with --data")
    return present


def _random_traces(options: argparse.Namespace) -> list[str]:
    return [f"{RANDOM}{options.first_seed + number}" for number in range(options.random)]


def _run(cells: list[Cell], cases: dict[str, TraceCase], data: Path, jobs: int) -> Iterator[CellResult]:
    if jobs == 1:
        for number, cell in enumerate(cells, 1):
            yield _report(run_cell(cell, cases, data), number, len(cells))
        return
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_cell, cell, cases, data) for cell in cells]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                yield _report(future.result(), number, len(cells))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _report(result: CellResult, number: int, total: int) -> CellResult:
    cell = result.cell
    where = f"{cell.trace} {cell.curve} restart {cell.restart:g} {cell.knowledge} {cell.policy}"
    _say(f"{number}/{total} {where}: mean {result.mean:,.0f} s, {result.run_seconds:.1f} s")
    return result


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _options(grid: Grid) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the grid of simulations; results are kept and not run again.")
    parser.add_argument("--traces", nargs="+", metavar="NAME", help="of the grid; all by default, none with --random")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="add N generated workloads")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first generated workload")
    parser.add_argument("--curves", nargs="+", default=grid.curves, choices=grid.curves)
    parser.add_argument("--restarts", nargs="+", type=float, default=grid.restarts, metavar="SECONDS")
    parser.add_argument("--knowledge", nargs="+", default=grid.knowledge)
    parser.add_argument("--policies", nargs="+", default=grid.policies, help="names, parameters or files")
    parser.add_argument("--seed", type=int, default=0, help="seed of noisy knowledge")
    parser.add_argument("--code", default="main", help="version of the code, part of the key of a result")
    parser.add_argument("--results", type=Path, default=Path("out/grid.jsonl"), help="file that keeps the results")
    parser.add_argument("--data", type=Path, default=LARGE, help="folder of the published traces")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
