"""A measured number with its budget; comparison, table and JSON of a list of them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from sterna.engine.kernels import bin_packing

Say = Callable[[str], None]
"""Prints a line about what is measured."""

FASTEST_WORTH_COMPARING = {"ms": 0.05, "s": 0.02}
"""Below it a ratio to the baseline is dominated by the resolution of the clock."""


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    case: str
    value: float
    unit: str
    budget: float | None = None
    peer_ratio: float | None = None
    """How many times what the bare loop took on the same trace in the same run."""
    note: str = ""
    is_made_up: bool = False
    """On a generated trace, because the published one is not at hand."""

    @property
    def verdict(self) -> str:
        if self.budget is None:
            return ""
        return "ok" if self.value <= self.budget else "over"


class Report(msgspec.Struct, frozen=True):
    mode: str
    machine: dict[str, str]
    measurements: list[Measurement]


def machine() -> dict[str, str]:
    """Describe the machine, for comparing two reports."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "kernels": "pure Python" if str(bin_packing.__file__).endswith(".py") else "compiled",
        "pace": f"{pace_ns():.0f} ns for a turn of a plain loop",
        "system": platform.system(),
        "processor": _processor(),
    }


def pace_ns() -> float:
    """Measure the current speed of the machine without our code: the median of many short runs."""
    taken = []
    for _ in range(100):
        begin, total = perf_counter(), 0
        for number in range(20_000):
            total += number
        taken.append((perf_counter() - begin) / 20_000 * 1e9)
    return median(taken)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def baseline_values(file: Path) -> dict[str, float]:
    """Case to value, empty if nothing has been kept yet."""
    if not file.is_file():
        return {}
    kept = msgspec.json.decode(file.read_bytes(), type=Report)
    return {measurement.case: measurement.value for measurement in kept.measurements}


def save(report: Report, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def show(measurements: Sequence[Measurement], baseline: Mapping[str, float]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("case")
    for heading in ("measured", "budget", "", "to baseline", "to bare loop"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for each in measurements:
        budget = "" if each.budget is None else f"{each.budget:g} {each.unit}"
        note = f"{each.note} (made-up trace)" if each.is_made_up else each.note
        peer = "" if each.peer_ratio is None else f"{each.peer_ratio:.1f}x"
        table.add_row(each.case, _format_value(each), budget, each.verdict, _to_baseline(each, baseline), peer, note)
    Console(width=150).print(table)


def _format_value(each: Measurement) -> str:
    return f"{each.value:,.2f} {each.unit}" if each.value < 1000 else f"{each.value:,.0f} {each.unit}"


def _to_baseline(each: Measurement, baseline: Mapping[str, float]) -> str:
    before = baseline.get(each.case, 0.0)
    return f"{each.value / before:.2f}x" if before > FASTEST_WORTH_COMPARING.get(each.unit, 0.0) else ""
