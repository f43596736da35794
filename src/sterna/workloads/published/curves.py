"""Eight small trainings that were recorded once: what each reported, by the wall clock and by CPU time.

For studies and tests of growth and of remaining time. They shared a core with others, so the two clocks tell different
stories. The recordings are handed out as numbers; what to make of them is the reader's business.
"""

from __future__ import annotations

import csv
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

MODELS = ("logreg", "mlp", "vae", "cnn", "gan", "lstm", "gru", "birnn")


class Clock(Enum):
    """On which clock seconds are counted; the value is its column in the file."""

    WALL = "wall_s"
    CPU = "cpu_s"


class Sample(NamedTuple):
    """One evaluation of a model."""

    step: float
    seconds: float
    loss: float


@cache
def recording(model: str, clock: Clock) -> tuple[Sample, ...]:
    """What a model reported, in order."""
    return tuple(
        Sample(float(row["step"]), float(row[clock.value]), float(row["loss"]))
        for row in _rows()
        if row["model"] == model
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = (files(__package__) / "curves_growth.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
