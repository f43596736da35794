"""Result of a reproduction: rows with the published figure, the target, our figure, and whether the target holds.

Studies create it, the command line and the report show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One measured figure; `published`, `target` and `holds` are None where there is none."""

    case: str
    """Name of the case: `count, shares only`."""
    metric: str
    """Measured quantity with its unit: `mean completion, change in %`."""
    published: float | None
    target: float | None
    ours: float
    holds: bool | None
    note: str = ""
    """Explanation, such as the interval over seeds or `from another run`."""


@dataclass(frozen=True)
class Figure:
    """A figure of the report: title, caption, and a plotly figure as plain data."""

    title: str
    caption: str
    plot: Mapping[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """Result of one study."""

    name: str
    question: str
    """Question of the study, in one sentence."""
    rows: Sequence[Row]
    remarks: Sequence[str] = ()
    """Assumptions and limits that a reader of the table must know."""
    figures: Callable[[], Sequence[Figure]] = field(default=tuple)

    @property
    def holds(self) -> bool:
        """Return True if every target is met."""
        return all(row.holds is not False for row in self.rows)

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of targets that are met."""
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


def format_value(value: float | None) -> str:
    """Format a figure of a row: large numbers as integers, others with one or two decimals."""
    if value is None:
        return ""
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:,.2f}"
