"""Statistics of a trace, for `sterna trace info`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from sterna.model.speedup import Floats
from sterna.workloads.trace import Trace

_MOST_NAMED = 12
"""Upper bound on the models, users and virtual clusters that are listed."""


def trace_facts(trace: Trace) -> dict[str, Any]:
    devices = trace.workers * trace.devices_per_worker
    service = devices * trace.duration_seconds
    span = float(np.ptp(trace.submit_seconds))
    facts: dict[str, Any] = {
        "source": trace.source,
        "format": trace.kind,
        "jobs": len(trace),
        "submit_span_s": round(span, 3),
        "duration_s": _spread(trace.duration_seconds),
        "workers": _frequent(trace.workers.tolist()),
        "gpus": _spread(devices),
        "gpu_hours": round(float(service.sum()) / 3600, 3),
        "mean_gpus_wanted": round(float(service.sum()) / span, 3) if span else None,
        "elastic_jobs": int((trace.minimum < trace.maximum).sum()),
    }
    for name, values in (("models", trace.model), ("users", trace.user), ("virtual_clusters", trace.pool)):
        if any(values):
            facts[name] = _frequent(values)
    return {name: value for name, value in facts.items() if value is not None}


def trace_rows(trace: Trace) -> list[dict[str, Any]]:
    """Return every job with the main columns of the native format."""
    columns = (trace.name, trace.submit_seconds.tolist(), trace.workers.tolist(), trace.duration_seconds.tolist())
    names = ("job", "submit_s", "workers", "duration_s")
    bounds = (trace.minimum.tolist(), trace.maximum.tolist(), trace.model)
    keys = (*names, "min_workers", "max_workers", "model")
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, *bounds, strict=True)]


def _spread(values: Floats) -> dict[str, float]:
    p50, p95 = np.percentile(values, (50, 95)).tolist()
    parts = {"min": values.min(), "mean": values.mean(), "median": p50, "p95": p95, "max": values.max()}
    return {name: round(float(value), 3) for name, value in parts.items()}


def _frequent(values: Iterable[object]) -> dict[str, int]:
    """Count values, most frequent first; the rest are summed as `others`."""
    counts = sorted(Counter(values).items(), key=lambda item: (-item[1], str(item[0])))
    shown = {str(value) or "(none)": count for value, count in counts[:_MOST_NAMED]}
    rest = sum(count for _, count in counts[_MOST_NAMED:])
    return shown | ({"others": rest} if rest else {})
