"""Markdown table of the grid: every policy beside the best of the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from tests.bench.grid.cells import CellResult
from tests.bench.grid.workloads import RANDOM

HEADS = (
    *("trace", "curve", "restart", "knowledge", "policy", "of best other", "mean", "p99", "stops", "resizes"),
    *("lost device-h", "lost", "over bound", "s"),
)


def ratios_to_best_other(results: Iterable[CellResult]) -> list[tuple[CellResult, float | None]]:
    """Return every result with its mean over the least mean of the other policies in the same cell."""
    groups: dict[tuple[object, ...], list[CellResult]] = defaultdict(list)
    for result in results:
        cell = result.cell
        groups[cell.trace, cell.curve, cell.restart, cell.knowledge, cell.seed, cell.code].append(result)
    rated: list[tuple[CellResult, float | None]] = []
    for group in groups.values():
        for result in group:
            others = [each.mean for each in group if each.cell.policy != result.cell.policy]
            rated.append((result, result.mean / min(others) if others else None))
    return rated


def markdown_table(results: Iterable[CellResult]) -> str:
    """Format one row per named trace and policy; random workloads are summarised below."""
    rated = ratios_to_best_other(results)
    named = [pair for pair in rated if not pair[0].cell.trace.startswith(RANDOM)]
    lines = []
    if named:
        lines += [_row(HEADS), "|---|---|---:|---|---|" + "---:|" * (len(HEADS) - 5)]
        lines += [_row(_cells(result, ratio)) for result, ratio in named]
    return "\n".join([*lines, *_summarize_random([pair for pair in rated if pair[0].cell.trace.startswith(RANDOM)])])


def _cells(result: CellResult, ratio: float | None) -> Sequence[str]:
    cell, held = result.cell, result.held_device_hours
    trace = cell.trace + (f" ({result.unfinished} unfinished)" if result.unfinished else "")
    return (
        *(trace, cell.curve, f"{cell.restart:g}", cell.knowledge, f"`{cell.policy}`"),
        "-" if ratio is None else f"{ratio:.3f}",
        *(f"{result.mean:,.0f}", f"{result.p99:,.0f}", f"{result.stops:,}", f"{result.resizes:,}"),
        f"{result.lost_device_hours:,.1f}",
        f"{result.lost_device_hours / held:.2%}" if held else "-",
        *(f"{result.over_bound:.3f}", f"{result.run_seconds:.1f}"),
    )


def _summarize_random(rated: Sequence[tuple[CellResult, float | None]]) -> list[str]:
    groups: dict[tuple[float, str, str], list[tuple[CellResult, float]]] = defaultdict(list)
    for result, ratio in rated:
        if ratio is not None:
            groups[result.cell.restart, result.cell.knowledge, result.cell.policy].append((result, ratio))
    if not groups:
        return []
    heads = ("random workloads", "restart", "knowledge", "policy", "geometric mean of best other", "within 3 %")
    lines = ["", _row((*heads, "worst", "worst seed", "over bound", "s"))]
    lines.append("|---:|---:|---|---|---:|---:|---:|---|---:|---:|")
    for (restart, knowledge, policy), group in sorted(groups.items()):
        ratios = np.array([ratio for _, ratio in group])
        worst = group[int(ratios.argmax())][0].cell.trace
        over = np.exp(np.log([result.over_bound for result, _ in group]).mean())
        lines.append(
            _row(
                (
                    *(f"{len(group)}", f"{restart:g}", knowledge, f"`{policy}`"),
                    *(f"{np.exp(np.log(ratios).mean()):.3f}", f"{(ratios <= 1.03).mean():.1%}", f"{ratios.max():.3f}"),
                    *(worst, f"{over:.3f}", f"{sum(result.run_seconds for result, _ in group):.0f}"),
                )
            )
        )
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
