"""What a reproduction yields: rows that set ours beside the published figure and say whether the target holds.

Studies fill it, the command line and the report show it; nothing here knows a study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


class Row(NamedTuple):
    """One figure. Where nothing was published or promised, that is None and nothing holds or fails."""

    case: str
    """What was run, in a few words: `count, shares only`."""
    metric: str
    """What was measured, with its unit: `mean completion, change in %`."""
    published: float | None
    target: float | None
    ours: float
    holds: bool | None
    note: str = ""
    """How to read it, if that is not plain: the interval over seeds, `from another run`."""


@dataclass(frozen=True)
class Figure:
    """A picture of the report: a title, a sentence on what to see, and a plotly figure as plain data."""

    title: str
    caption: str
    plot: Mapping[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """One study, done again."""

    name: str
    question: str
    """What the study asked, in one sentence."""
    rows: Sequence[Row]
    remarks: Sequence[str] = ()
    """What a reader must know to believe the table."""
    figures: Callable[[], Sequence[Figure]] = field(default=tuple)

    @property
    def holds(self) -> bool:
        """Whether every target that was set is met."""
        return all(row.holds is not False for row in self.rows)

    @property
    def verdict(self) -> str:
        """One sentence on how many of the targets are met."""
        targets = [row for row in self.rows if row.holds is not None]
        if not targets:
            return "No targets were set: these rows inform."
        missed = [f"{row.case} ({row.metric})" for row in targets if not row.holds]
        met = f"{len(targets) - len(missed)} of {len(targets)} targets hold"
        return f"{met}; missed: {'; '.join(missed)}." if missed else f"{met}."

    def as_document(self) -> dict[str, Any]:
        fields = ("case", "metric", "published", "target", "ours", "holds", "note")
        rows = [{name: getattr(row, name) for name in fields} for row in self.rows]
        return {"name": self.name, "question": self.question, "rows": rows, "remarks": list(self.remarks)}


def shown(value: float | None) -> str:
    """A figure of a row, for people: whole where it is large, with a decimal or two where it is not."""
    if value is None:
        return ""
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:,.2f}"
