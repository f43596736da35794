"""Jobs for simulated CPU-shared nodes: their work, core limits and reported metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

QUALITY = 0.95
"""Fraction of its whole improvement at which a model counts as good."""


@dataclass(frozen=True)
class GrowthCurves:
    """Metric values of several model families by the fraction of work done."""

    values: Floats
    """Family by grid point, evenly spaced from 0 to 1 of the work."""

    def at(self, family: Ints, done: Floats) -> Floats:
        """Return the metric of each job, interpolated linearly."""
        last = self.values.shape[1] - 1
        place = np.clip(done, 0.0, 1.0) * last
        low = np.minimum(place.astype(np.int64), last - 1)
        part = place - low
        value: Floats = self.values[family, low] * (1 - part) + self.values[family, low + 1] * part
        return value

    def quality_point(self, quality: float = QUALITY) -> Floats:
        """Return the fraction of work after which each family has made `quality` of its improvement; metrics fall."""
        best = np.minimum.accumulate(self.values, axis=1)
        gained = (best[:, :1] - best) / (best[:, :1] - best[:, -1:])
        after = (gained >= quality).argmax(axis=1)
        rows = np.arange(len(best))
        before = gained[rows, after - 1]
        part = (quality - before) / (gained[rows, after] - before)
        point: Floats = (after - 1 + part) / (best.shape[1] - 1)
        return point


FLAT = GrowthCurves(np.linspace(1.0, 0.0, 11)[None, :])
"""One family whose metric falls linearly."""


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
    estimate: Floats = field(default_factory=lambda: np.zeros(0))
    """Estimated work of each job, NaN where unknown. Empty: the true work."""

    def __len__(self) -> int:
        return len(self.name)

    @property
    def known(self) -> Floats:
        return self.estimate if len(self.estimate) else self.work
