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
        self._lessons = {lesson.category: lesson for lesson in known}
        self._fits: dict[str, tuple[float, int, Fit]] = {}
        """Steps, sizes and result of each fit."""
        self._rows: dict[str, int] = {}
        self.table = CurveRows(most)
        self._unsaved: set[str] = set()
        self._unread = set(self._lessons)
        """Categories learned by a predecessor and not fitted yet: a fit takes a millisecond or two."""

    @property
    def learned(self) -> Learned:
        return Learned(tuple(self._lessons[category] for category in sorted(self._lessons)))

    @property
    def by_age(self) -> tuple[CategoryRecord, ...]:
        """Return the records, least recently updated first."""
        return tuple(self._lessons.values())

    def recall(self, known: Iterable[CategoryRecord]) -> None:
        """Merge records that a predecessor stored; they are older than all records here."""
        heard, self._lessons = self._lessons, {lesson.category: lesson for lesson in known}
        for category, lesson in heard.items():
            old = self._lessons.pop(category, None)
            self._lessons[category] = lesson if old is None else old.merge(lesson)
        self._unread |= set(self._lessons)

    @property
    def restart_seconds(self) -> float:
        return restart_seconds(self._lessons.values(), _PRIOR)

    def add_steps(self, category: str, workers: int, steps: float, seconds: float) -> None:
        self._set_record(self._of(category).with_steps(workers, steps, seconds))

    def add_restart(self, category: str, seconds: float) -> None:
        self._set_record(self._of(category).with_restart(seconds))

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
        changed = [self._lessons[category] for category in sorted(self._unsaved)]
        self._unsaved.clear()
        return changed

    def _of(self, category: str) -> CategoryRecord:
        return self._lessons.get(category) or CategoryRecord(category)

    def _set_record(self, lesson: CategoryRecord) -> None:
        if lesson == self._lessons.get(lesson.category):
            return
        self._lessons.pop(lesson.category, None)
        self._lessons[lesson.category] = lesson  # the last updated record is last
        self._unsaved.add(lesson.category)
        self._refit(lesson.category)

    def _read(self, category: str) -> None:
        if category in self._unread:
            self._unread.discard(category)
            self._refit(category)

    def _refit(self, category: str) -> None:
        """Fit a category again if there is enough new data."""
        lesson = self._lessons[category]
        if not lesson.paces:
            return
        steps, sizes, _ = self._fits.get(category, (0.0, 0, None))
        if len(lesson.paces) <= sizes and lesson.steps < _NEWS * steps:
            return
        fit = fit_curve(lesson)
        self._fits[category] = (lesson.steps, len(lesson.paces), fit)
        self._rows[category] = self.table.row(fit)
