"""Columns that few worlds know, for the journal: told only where they are not what stands for everybody.

A world without shared nodes thereby writes nothing of them, and old journals are read as they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.model.snapshot import NEVER, Jobs, OptionalColumn

ExtraColumns = dict[str, list[tuple[int, float | str]]]
"""By column: row and value, for some rows. Words stand for what JSON has no number for."""

_DEFAULTS: dict[str, float] = {
    name: column.default for name, column in vars(Jobs).items() if isinstance(column, OptionalColumn)
}
_WORDS = {"unknown": math.nan, "never": NEVER, "always": -NEVER}


def extra_columns(jobs: Jobs) -> ExtraColumns:
    """What is out of the ordinary in these jobs; unknown totals count as that."""
    told: ExtraColumns = {}
    for name, usual in _DEFAULTS.items():
        values = getattr(jobs, name)
        rows = (~np.isnan(values) if math.isnan(usual) else values != usual).nonzero()[0].tolist()
        if rows:
            told[name] = [(row, _worded(values.item(row))) for row in rows]
    unknown = np.isnan(jobs.remaining).nonzero()[0].tolist()
    return told | ({"remaining": [(row, "unknown") for row in unknown]} if unknown else {})


def overlay_columns(
    columns: Mapping[str, npt.NDArray[Any]], told: ExtraColumns, rows: int
) -> dict[str, npt.NDArray[Any]]:
    """The columns with what was told laid over them."""
    whole = dict(columns)
    for name, entries in told.items():
        if name not in whole:
            usual = _DEFAULTS[name]
            whole[name] = np.full(rows, usual, dtype=np.int64 if isinstance(usual, int) else np.float64)
        places, values = _unzipped(entries)
        whole[name][places] = values
    return whole


def _worded(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "unknown" if math.isnan(value) else ("never" if value > 0 else "always")


def _unzipped(entries: Sequence[tuple[int, float | str]]) -> tuple[list[int], list[float]]:
    return [row for row, _ in entries], [_WORDS[v] if isinstance(v, str) else v for _, v in entries]
