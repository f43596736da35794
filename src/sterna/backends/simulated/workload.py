"""Simulated jobs with their true work: constant columns, made once from a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sterna.model.cluster import MILLI, Ints, Shape, Shapes
from sterna.model.speedup import LINEAR, Curves, Floats, Repaired, concave
from sterna.workloads.profiles import curve_of
from sterna.workloads.trace import Trace


@dataclass(frozen=True)
class Workload:
    """Jobs in (submit, name) order. Work is in seconds at one worker."""

    name: tuple[str, ...]
    submit: Floats
    request: Ints
    minimum: Ints
    maximum: Ints
    shape: Ints
    curve: Ints
    priority: Ints
    work: Floats
    shapes: Shapes
    curves: Curves
    notices: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    """Jobs of one category are assumed to behave alike; empty: one category for all."""
    steps: Floats | None = None
    """Steps of each job. None, as for every trace: in proportion to the job's work, 100 on average in a category."""
    unplanned_work: Floats | None = None
    """Work that rules expect of each job beyond its end, because its user did not plan that end; None: no such job."""

    def __len__(self) -> int:
        return len(self.name)


_ROUNDING = 1e-6
"""Tolerance for thousandths that are an artefact of binary fractions."""


def workload_of(trace: Trace, speedups: Mapping[str, tuple[float, ...]] | None = None) -> Workload:
    """Make a workload of a trace; curves come from `speedups`, else the built-in profile of the model, else linear."""
    curve, curves, notices = _curves(trace, speedups or {})
    needs, shape = np.unique(
        np.ceil(trace.devices_per_worker * MILLI - _ROUNDING).astype(np.int64), return_inverse=True
    )
    shapes = Shapes(tuple(Shape(devices=int(need)) for need in needs))
    work = trace.duration_seconds * curves.speed(curve, trace.workers)
    return Workload(
        trace.name,
        trace.submit_seconds,
        trace.workers,
        trace.minimum,
        trace.maximum,
        shape.astype(np.int64),
        curve,
        trace.priority,
        work,
        shapes,
        curves,
        notices,
        trace.category,
    )


def _curves(trace: Trace, speedups: Mapping[str, tuple[float, ...]]) -> tuple[Ints, Curves, tuple[str, ...]]:
    rows: list[tuple[float, ...]] = [(1.0,)]
    notices = []
    code_of: dict[str, int] = {}
    for model in dict.fromkeys(trace.model):
        raw = curve_of(model, speedups)
        if raw is None:
            code_of[model] = LINEAR
            continue
        code_of[model] = len(rows)
        rows.append(concave(raw))
        if isinstance(rows[-1], Repaired) and raw != curve_of(model):
            shown = ", ".join(f"{speed:.3g}" for speed in rows[-1][:8])
            notices.append(
                f"The speed-up curve of '{model}' was not concave; it is used as {shown}{'..' if len(raw) > 8 else ''}."
            )
    codes = np.array([code_of[model] for model in trace.model], dtype=np.int64)
    return codes, Curves(tuple(rows)), tuple(notices)
