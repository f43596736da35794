"""Which column of a published CSV means what: enough to read most of them without a line of code of their own.

One file of this package declares each layout and says where it comes from. Formats that are not one job per row of a
CSV (Philly's JSON) bring their own reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.workloads.domain import NOT_NEGATIVE, WHOLE, Floats
from sterna.workloads.foreign import foreign_trace
from sterna.workloads.table import Format, Table
from sterna.workloads.trace import Trace, numbered_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Column names; an empty one means that the format has no such column."""

    kind: str
    submit: str
    workers: str
    """Where only GPUs are counted, each is a worker of its own."""
    duration: str = ""
    end: str = ""
    """Where there is no duration, it lasts from `submit` to here."""
    job: str = ""
    """Without one, jobs are numbered in the order of the file."""
    devices: str = ""
    model: str = ""
    category: str = ""
    user: str = ""
    pool: str = ""
    is_dated: bool = False
    """`submit` holds dates, not numbers."""
    submit_units_per_second: float = 1.0
    device_units: float = 1.0
    """What one whole device is in the column `devices`."""

    @property
    def format(self) -> Format:
        """Recognised by the columns that a replay cannot do without; the others may be missing."""
        needed = (self.job, self.submit, self.workers, self.duration, self.end, self.devices)
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
            model=table.text(self.model) if self.model else None,
            category=table.text(self.category) if self.category else None,
            user=table.text(self.user) if self.user else None,
            pool=table.text(self.pool) if self.pool else None,
            lines=table.lines,
            is_dated=self.is_dated,
        )

    def _submit_seconds(self, table: Table) -> Floats:
        if self.is_dated:
            return table.seconds(self.submit)
        return table.numbers(self.submit, NOT_NEGATIVE, blank=np.nan) / self.submit_units_per_second
