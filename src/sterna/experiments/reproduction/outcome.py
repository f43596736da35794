"""Result of a reproduction: rows with the published figure, the target, our figure, and whether the target holds.

Studies create it, the command line and the report show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class TargetBand(NamedTuple):
    """Values that meet a target, bounds included; an infinite bound is none."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def describe(self) -> str:
        """Format the band for the column of targets: `70 to 90`, `≤ 15`, `≥ 20`."""
        low, high = format_value(self.low), format_value(self.high)
        if math.isinf(self.low):
            return f"≤ {high}"
        return f"≥ {low}" if math.isinf(self.high) else f"{low} to {high}"


class Row(NamedTuple):
    """One measured figure; `published`, `target`, `holds` and `band` are None where there is none."""

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
    band: TargetBand | None = None
    """Values by which `holds` is judged."""

    @property
    def target_text(self) -> str:
        """Return the target as tables show it: the band by which the row is judged."""
        return format_value(self.target) if self.band is None else self.band.describe()


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
        rows = [{name: getattr(row, name) for name in fields} | {"judged_by": row.target_text} for row in self.rows]
        return {"name": self.name, "question": self.question, "rows": rows, "remarks": list(self.remarks)}


def judged_row(
    case: str,
    metric: str,
    published: float | None,
    band: TargetBand,
    ours: float,
    note: str = "",
    target: float | None = None,
) -> Row:
    """Make a row that holds if ours lies in the band; its target is the band's only bound unless it is given."""
    bounds = [bound for bound in band if not math.isinf(bound)]
    target = bounds[0] if target is None and len(bounds) == 1 else target
    return Row(case, metric, published, target, ours, band.holds(ours), note, band)


def format_value(value: float | None) -> str:
    """Format a figure of a row: large numbers as integers, others with one or two decimals."""
    if value is None or math.isinf(value):
        return ""
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:,.2f}"
