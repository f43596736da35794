"""Recordings of eight small trainings: loss by step, with wall time and CPU time.

Studies and tests of growth and of remaining time use them. The trainings shared a core with others, so the two clocks
differ.
"""

from __future__ import annotations

import csv
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

MODELS = ("logreg", "mlp", "vae", "cnn", "gan", "lstm", "gru", "birnn")


class RecordingClock(Enum):
    """Clock of a recording; the value is its column in the file."""

    WALL = "wall_s"
    CPU = "cpu_s"


class RecordedSample(NamedTuple):
    """One evaluation of a model."""

    step: float
    seconds: float
    loss: float


@cache
def recording(model: str, clock: RecordingClock) -> tuple[RecordedSample, ...]:
    """Return the evaluations of a model in order."""
    return tuple(
        RecordedSample(float(row["step"]), float(row[clock.value]), float(row["loss"]))
        for row in _rows()
        if row["model"] == model
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = (files(__package__) / "curves_growth.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
