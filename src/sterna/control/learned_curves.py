"""What jobs of a category have taught: speed-up curves, step times and restart costs, kept beyond the jobs themselves.

The sums are `model/learned`; here they are gathered, fitted when there is news worth it, and handed to the store.
"""

from __future__ import annotations

from collections.abc import Iterable

from sterna.model.learned import CategoryRecord, CurveRows, Fit, Learned, Prior, fit_curve, restart_seconds
from sterna.model.speedup import LINEAR

_NEWS = 1.1
"""A category is fitted again when it has shown so many times the steps of its last fit, or another size."""
_PRIOR = Prior(restart_seconds=1.0)
"""Processes on one machine start sooner than containers on a cluster."""


class LearnedCurves:
    """All that was learned here, and curves made of it."""

    def __init__(self, known: Iterable[CategoryRecord] = (), most: int = 64) -> None:
        self._lessons = {lesson.category: lesson for lesson in known}
        self._fits: dict[str, tuple[float, int, Fit]] = {}
        """Steps and sizes behind each fit, and the fit."""
        self._rows: dict[str, int] = {}
        self.table = CurveRows(most)
        self._unsaved: set[str] = set()
        self._unread = set(self._lessons)
        """Categories that somebody else has learned, and nobody asked for yet: a fit takes a millisecond or two."""

    @property
    def learned(self) -> Learned:
        return Learned(tuple(self._lessons[category] for category in sorted(self._lessons)))

    @property
    def by_age(self) -> tuple[CategoryRecord, ...]:
        """Those of which nothing was heard for longest come first."""
        return tuple(self._lessons.values())

    def recall(self, known: Iterable[CategoryRecord]) -> None:
        """What was learned before, by somebody else; it is older than all that was heard here, and counts with it."""
        heard, self._lessons = self._lessons, {lesson.category: lesson for lesson in known}
        for category, lesson in heard.items():
            old = self._lessons.pop(category, None)
            self._lessons[category] = lesson if old is None else old.merge(lesson)
        self._unread |= set(self._lessons)

    @property
    def restart_seconds(self) -> float:
        return restart_seconds(self._lessons.values(), _PRIOR)

    def add_steps(self, category: str, workers: int, steps: float, seconds: float) -> None:
        self._put(self._of(category).with_steps(workers, steps, seconds))

    def add_restart(self, category: str, seconds: float) -> None:
        self._put(self._of(category).with_restart(seconds))

    def row(self, category: str) -> int:
        """The category's row of `curves`."""
        self._read(category)
        return self._rows.get(category, LINEAR)

    def speed(self, category: str, workers: int) -> float:
        row = self.row(category)  # may add one to the table
        return self.table.curves.speed_of(row, workers)

    def step_seconds(self, category: str) -> float | None:
        """At one worker; nothing where none was seen."""
        self._read(category)
        fit = self._fits.get(category)
        return fit[2].step_seconds if fit else None

    def pop_unsaved(self) -> list[CategoryRecord]:
        """What has changed since the last call, to be kept."""
        changed = [self._lessons[category] for category in sorted(self._unsaved)]
        self._unsaved.clear()
        return changed

    def _of(self, category: str) -> CategoryRecord:
        return self._lessons.get(category) or CategoryRecord(category)

    def _put(self, lesson: CategoryRecord) -> None:
        if lesson == self._lessons.get(lesson.category):
            return
        self._lessons.pop(lesson.category, None)
        self._lessons[lesson.category] = lesson  # the latest news comes last
        self._unsaved.add(lesson.category)
        self._refit(lesson.category)

    def _read(self, category: str) -> None:
        if category in self._unread:
            self._unread.discard(category)
            self._refit(category)

    def _refit(self, category: str) -> None:
        """Fit again if there is news worth it."""
        lesson = self._lessons[category]
        if not lesson.paces:
            return
        steps, sizes, _ = self._fits.get(category, (0.0, 0, None))
        if len(lesson.paces) <= sizes and lesson.steps < _NEWS * steps:
            return
        fit = fit_curve(lesson)
        self._fits[category] = (lesson.steps, len(lesson.paces), fit)
        self._rows[category] = self.table.row(fit)
