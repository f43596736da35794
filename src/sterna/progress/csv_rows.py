"""Progress from a CSV file that a training appends to.

Known are Voda's columns (`epoch` counted from 0, `total_epochs`, `epoch_time_sec`, `start_time`, ..), those of the
family of SpeCon (`Steps,Loss,Accuracy`; `num_iteration`, `total_iteration`, ..; `time,step,metric`), and any header
with a name for the steps. Rows without a header are step and value, or time, step and value. A damaged row is skipped;
a truncated or replaced file is read from its start.
"""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Mapping, Sequence

from sterna.progress.names import ProgressRow, classify_values, finite, number

_VODA = frozenset({"epoch_time_sec", "total_epochs"})
_VODA_BESIDE = frozenset({"steps", "epochs", "verbose", "workers", "local_batch_size", "global_batch_size"})
_NAMELESS = {2: ("step", "value"), 3: ("time", "step", "value")}
_NAMELESS_WITHOUT_TIME = ("step", "loss", "accuracy")


class CsvReader:
    """Reads the rows of one file, in order."""

    def __init__(self) -> None:
        self._header: tuple[str, ...] = ()
        self._separator = ","

    def reset(self) -> None:
        self._header = ()

    def read(self, raw: bytes) -> ProgressRow | None:
        """Progress in a row; None for the header and for lines that are no row."""
        text = raw.decode("utf-8-sig", "replace").strip("\r\n")
        if not text.strip():
            return None
        if not self._header:
            self._separator = max(",;\t", key=text.count)
        cells = self._cells(text)
        if not self._header:
            if not _is_header(cells):
                self._header = _nameless(cells)
            else:
                self._header = tuple(cell.strip() for cell in cells)
                return None
        if not self._header or len(cells) != len(self._header) or tuple(cells) == self._header:
            return None
        row = dict(zip(self._header, cells, strict=True))
        return _voda(row) if _VODA & row.keys() and "epoch" in row else _plain(row)

    def _cells(self, text: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=self._separator), [])
        except csv.Error:
            return []


def _is_header(cells: Sequence[str]) -> bool:
    return any(cell.strip() and math.isnan(number(cell)) and cell.strip().lower() != "nan" for cell in cells)


def _nameless(cells: Sequence[str]) -> tuple[str, ...]:
    if len(cells) == 3 and not 1e9 <= number(cells[0]) < 1e13:
        return _NAMELESS_WITHOUT_TIME
    return _NAMELESS.get(len(cells), ())


def _plain(row: Mapping[str, str]) -> ProgressRow | None:
    values = {name: number(cell) for name, cell in row.items() if cell.strip() and _is_numeric(cell)}
    found = classify_values(values)
    return found if found.step is not None or found.metrics else None


def _is_numeric(cell: str) -> bool:
    return not math.isnan(number(cell)) or cell.strip().lower() in ("nan", "-nan")


def _voda(row: Mapping[str, str]) -> ProgressRow | None:
    """Voda writes a row at the end of its epoch, counted from 0."""
    epoch = number(row["epoch"])
    if not 0 <= epoch < 2**31:
        return None
    total = number(row.get("total_epochs", ""))
    metrics = {
        name: finite(number(cell))
        for name, cell in row.items()
        if name not in ("epoch", "total_epochs", "start_time") and name not in _VODA_BESIDE and _is_numeric(cell)
    }
    if _is_numeric(row.get("workers", "")):
        metrics["workers"] = finite(number(row["workers"]))
    return ProgressRow(
        int(epoch) + 1, int(total) if total > 0 and math.isfinite(total) else None, metrics, _end_time(row)
    )


def _end_time(row: Mapping[str, str]) -> float | None:
    try:
        began = datetime.datetime.fromisoformat(row["start_time"].strip()).timestamp()
        return began + float(row.get("epoch_time_sec", "0") or 0)
    except (KeyError, ValueError, OverflowError, OSError):
        return None
