"""Jobs for a world of shared nodes: how much each has to do, how many cores it can use, what it reports meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

QUALITY = 0.95
"""A model is as good as done when it has made so much of its whole improvement."""


@dataclass(frozen=True)
class GrowthCurves:
    """What models of several families measure, by the part of their work that is done."""

    values: Floats
    """Family by grid point, from nothing done to all done, evenly spaced."""

    def at(self, family: Ints, done: Floats) -> Floats:
        """The metric of each job, between grid points on a straight line."""
        last = self.values.shape[1] - 1
        place = np.clip(done, 0.0, 1.0) * last
        low = np.minimum(place.astype(np.int64), last - 1)
        part = place - low
        value: Floats = self.values[family, low] * (1 - part) + self.values[family, low + 1] * part
        return value

    def quality_point(self, quality: float = QUALITY) -> Floats:
        """The part of its work after which each family has made so much of its improvement; metrics fall."""
        best = np.minimum.accumulate(self.values, axis=1)
        gained = (best[:, :1] - best) / (best[:, :1] - best[:, -1:])
        after = (gained >= quality).argmax(axis=1)
        rows = np.arange(len(best))
        before = gained[rows, after - 1]
        part = (quality - before) / (gained[rows, after] - before)
        point: Floats = (after - 1 + part) / (best.shape[1] - 1)
        return point


FLAT = GrowthCurves(np.linspace(1.0, 0.0, 11)[None, :])
"""A single family that improves evenly to its end."""


@dataclass(frozen=True)
class SharedWorkload:
    """Jobs in (submit, name) order, with a fixed number of workers each. Work is in core-seconds."""

    name: tuple[str, ...]
    submit: Floats
    work: Floats
    cores: Floats
    """Most cores that one worker can use."""
    workers: Ints
    family: Ints
    curves: GrowthCurves = FLAT
    believed: Floats = field(default_factory=lambda: np.zeros(0))
    """What is known of the work of each job beforehand; no number: nothing. Empty: the truth."""

    def __len__(self) -> int:
        return len(self.name)

    @property
    def known(self) -> Floats:
        return self.believed if len(self.believed) else self.work
