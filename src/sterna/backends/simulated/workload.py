"""Simulated jobs with their true work: constant columns, made once from a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.model.cluster import MILLI, Ints, Shape, Shapes
from sterna.model.speedup import LINEAR, Curves, Floats, Repaired, concave
from sterna.workloads.profiles import curve_of
from sterna.workloads.speedup_assumption import LINEAR_SPEEDUP, SpeedupAssumption, assume_curves
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
    requested_seconds: Floats | None = None
    """Run time that the user requested, with `request` workers; NaN if unknown. None: unknown for all."""

    def __len__(self) -> int:
        return len(self.name)


_ROUNDING = 1e-6
"""Tolerance for thousandths that are an artefact of binary fractions."""


def workload_of(
    trace: Trace,
    speedups: Mapping[str, tuple[float, ...]] | None = None,
    assumption: SpeedupAssumption = LINEAR_SPEEDUP,
    seed: int = 0,
) -> Workload:
    """Make a workload of a trace; curves come from `speedups`, else from the built-in profile of the model, else from
    the assumption, whose draws depend on `seed`."""
    assumed = assume_curves(trace, speedups or {}, assumption, seed)
    curve, curves, notices = _curves(assumed.model, assumed.speedups)
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
        (*assumed.notices, *notices),
        assumed.category,
        requested_seconds=None if np.isnan(trace.requested_seconds).all() else trace.requested_seconds,
    )


def _curves(models: Sequence[str], speedups: Mapping[str, tuple[float, ...]]) -> tuple[Ints, Curves, tuple[str, ...]]:
    rows: list[tuple[float, ...]] = [(1.0,)]
    notices = []
    code_of: dict[str, int] = {}
    for model in dict.fromkeys(models):
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
    codes = np.array([code_of[model] for model in models], dtype=np.int64)
    return codes, Curves(tuple(rows)), tuple(notices)
