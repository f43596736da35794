"""Speed-up curves, step times and restart costs learned per category of jobs, kept beyond the jobs themselves.

`model/learned` has the sums and fits; here they are collected, refitted when there is enough new data, and handed out
for storage.
"""

from __future__ import annotations

from collections.abc import Iterable

from sterna.model.learned import CategoryRecord, CurveRows, Fit, Learned, Prior, fit_curve, restart_seconds
from sterna.model.speedup import LINEAR

_NEWS = 1.1
"""Factor of steps since its last fit at which a category is fitted again; a new size is another reason."""
_PRIOR = Prior(restart_seconds=1.0)
"""Prior restart cost: processes on one machine start faster than containers on a cluster."""


class LearnedCurves:
    """Learned records by category, and the curves fitted to them."""

    def __init__(self, known: Iterable[CategoryRecord] = (), most: int = 64) -> None:
        self._records = {record.category: record for record in known}
        self._fits: dict[str, tuple[float, int, Fit]] = {}
        """Steps, sizes and result of each fit."""
        self._rows: dict[str, int] = {}
        self.table = CurveRows(most)
        self._unsaved: set[str] = set()
        self._unread = set(self._records)
        """Categories learned by a predecessor and not fitted yet: a fit takes a millisecond or two."""

    @property
    def learned(self) -> Learned:
        return Learned(tuple(self._records[category] for category in sorted(self._records)))

    @property
    def by_age(self) -> tuple[CategoryRecord, ...]:
        """Return the records, least recently updated first."""
        return tuple(self._records.values())

    def recall(self, known: Iterable[CategoryRecord]) -> None:
        """Merge records that a predecessor stored; they are older than all records here."""
        heard, self._records = self._records, {record.category: record for record in known}
        for category, record in heard.items():
            old = self._records.pop(category, None)
            self._records[category] = record if old is None else old.merge(record)
        self._unread |= set(self._records)

    @property
    def restart_seconds(self) -> float:
        return restart_seconds(self._records.values(), _PRIOR)

    def restart_seconds_of(self, category: str) -> float:
        """Return the mean restart of a category, with the mean of all categories as one more measurement."""
        known = self._records.get(category)
        return restart_seconds([known] if known else [], Prior(restart_seconds=self.restart_seconds))

    def add_steps(self, category: str, workers: int, steps: float, seconds: float) -> None:
        self._set_record(self._of(category).with_steps(workers, steps, seconds))

    def add_restart(self, category: str, seconds: float) -> None:
        self._set_record(self._of(category).with_restart(seconds))

    def record_of(self, category: str) -> CategoryRecord:
        """Return the record of a category, empty if there is none."""
        return self._of(category)

    def row(self, category: str) -> int:
        """Return the category's row of `table.curves`."""
        self._read(category)
        return self._rows.get(category, LINEAR)

    def speed(self, category: str, workers: int) -> float:
        row = self.row(category)  # may add a row to the table
        return self.table.curves.speed_of(row, workers)

    def step_seconds(self, category: str) -> float | None:
        """Return the step time at one worker; None: unknown."""
        self._read(category)
        fit = self._fits.get(category)
        return fit[2].step_seconds if fit else None

    def pop_unsaved(self) -> list[CategoryRecord]:
        """Return the records that changed since the last call."""
        changed = [self._records[category] for category in sorted(self._unsaved)]
        self._unsaved.clear()
        return changed

    def _of(self, category: str) -> CategoryRecord:
        return self._records.get(category) or CategoryRecord(category)

    def _set_record(self, record: CategoryRecord) -> None:
        if record == self._records.get(record.category):
            return
        self._records.pop(record.category, None)
        self._records[record.category] = record  # the last updated record is last
        self._unsaved.add(record.category)
        self._refit(record.category)

    def _read(self, category: str) -> None:
        if category in self._unread:
            self._unread.discard(category)
            self._refit(category)

    def _refit(self, category: str) -> None:
        """Fit a category again if there is enough new data."""
        record = self._records[category]
        if not record.paces:
            return
        steps, sizes, _ = self._fits.get(category, (0.0, 0, None))
        if len(record.paces) <= sizes and record.steps < _NEWS * steps:
            return
        fit = fit_curve(record)
        self._fits[category] = (record.steps, len(record.paces), fit)
        self._rows[category] = self.table.row(fit)
