"""Codec of optional snapshot columns for the journal: only values that differ from the default are written.

A cluster without shared nodes writes none of them, and older journals stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.model.snapshot import NEVER, Jobs, OptionalColumn

ExtraColumns = dict[str, list[tuple[int, float | str]]]
"""By column: row and value of some rows. Words stand for values without a JSON number."""

_DEFAULTS: dict[str, float] = {
    name: column.default for name, column in vars(Jobs).items() if isinstance(column, OptionalColumn)
}
_WORDS = {"unknown": math.nan, "never": NEVER, "always": -NEVER}


def extra_columns(jobs: Jobs) -> ExtraColumns:
    """Return the values that differ from their defaults, and the rows whose total is unknown."""
    extra: ExtraColumns = {}
    for name, usual in _DEFAULTS.items():
        values = getattr(jobs, name)
        rows = (~np.isnan(values) if math.isnan(usual) else values != usual).nonzero()[0].tolist()
        if rows:
            extra[name] = [(row, _encode_value(values.item(row))) for row in rows]
    unknown = np.isnan(jobs.remaining).nonzero()[0].tolist()
    return extra | ({"remaining": [(row, "unknown") for row in unknown]} if unknown else {})


def overlay_columns(
    columns: Mapping[str, npt.NDArray[Any]], extra: ExtraColumns, rows: int
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns with the recorded values filled in."""
    whole = dict(columns)
    for name, entries in extra.items():
        if name not in whole:
            usual = _DEFAULTS[name]
            whole[name] = np.full(rows, usual, dtype=np.int64 if isinstance(usual, int) else np.float64)
        places, values = _split_entries(entries)
        whole[name][places] = values
    return whole


def _encode_value(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "unknown" if math.isnan(value) else ("never" if value > 0 else "always")


def _split_entries(entries: Sequence[tuple[int, float | str]]) -> tuple[list[int], list[float]]:
    return [row for row, _ in entries], [_WORDS[v] if isinstance(v, str) else v for _, v in entries]
