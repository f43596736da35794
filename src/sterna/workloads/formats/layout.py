"""Mapping from the columns of a published CSV to the fields of a trace; most formats need no other code.

Each layout is declared in a module of its own that names its source. Formats that are not one job per row of a
CSV (Philly's JSON) bring their own reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sterna.workloads.domain import NOT_NEGATIVE, WHOLE, FloatColumn
from sterna.workloads.formats.foreign import foreign_trace
from sterna.workloads.table import Format, Table
from sterna.workloads.trace import Trace, numbered_names


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    """Column names; an empty one means that the format has no such column."""

    kind: str
    submit: str
    workers: str
    """Formats that only count GPUs have one worker per GPU."""
    duration: str = ""
    end: str = ""
    """End of the job, for formats without a duration."""
    job: str = ""
    """Formats without one number the jobs in the order of the file."""
    devices: str = ""
    model: str = ""
    model_names: Mapping[str, str] = field(default_factory=dict)
    """Profile of a model that has another name there."""
    needs: tuple[str, ...] = ()
    """Columns that are not read but tell the format from others."""
    category: str = ""
    user: str = ""
    pool: str = ""
    status: str = ""
    is_dated: bool = False
    """`submit` holds dates, not numbers."""
    submit_units_per_second: float = 1.0
    device_units: float = 1.0
    """Value of one whole device in the column `devices`."""

    @property
    def format(self) -> Format:
        """Require the columns that a replay needs; the others may be missing."""
        needed = (self.job, self.submit, self.workers, self.duration, self.end, self.devices, *self.needs)
        return Format(self.kind, tuple(column for column in needed if column), self.read)

    def read(self, table: Table) -> Trace:
        submit = self._submit_seconds(table)
        until = table.numbers(self.duration or self.end, NOT_NEGATIVE, blank=np.nan)
        devices = table.numbers(self.devices, NOT_NEGATIVE, blank=0) / self.device_units if self.devices else None
        return foreign_trace(
            source=table.source,
            kind=self.kind,
            name=table.text(self.job) if self.job else numbered_names(len(table)),
            submit_seconds=submit,
            workers=table.numbers(self.workers, WHOLE, blank=0),
            duration_seconds=until - submit if self.end else until,
            devices_per_worker=devices,
            model=[self.model_names.get(each, each) for each in table.text(self.model)] if self.model else None,
            category=table.text(self.category) if self.category else None,
            user=table.text(self.user) if self.user else None,
            pool=table.text(self.pool) if self.pool else None,
            status=table.text(self.status) if self.status else None,
            lines=table.lines,
            is_dated=self.is_dated,
        )

    def _submit_seconds(self, table: Table) -> FloatColumn:
        if self.is_dated:
            return table.seconds(self.submit)
        return table.numbers(self.submit, NOT_NEGATIVE, blank=np.nan) / self.submit_units_per_second
