"""A trace: jobs that somebody ran once, as columns, ready to be replayed.

Loaders and generators make traces, the simulator replays them. A trace knows durations, which no scheduler does; it never
reaches a policy as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sterna.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in (submit, name) order, one row each. Build one with `make_trace`, which sorts and checks."""

    name: tuple[str, ...]
    submit_seconds: Floats
    """Seconds after the first submission of the original trace."""
    workers: Ints
    """What the user asked for."""
    minimum: Ints
    maximum: Ints
    duration_seconds: Floats
    """How long the job runs with `workers` workers and nothing in its way."""
    devices_per_worker: Floats
    """Whole devices, or a fraction of one."""
    priority: Ints
    """0 is the highest."""
    model: tuple[str, ...]
    """Selects the speed-up curve; empty where unknown."""
    category: tuple[str, ...]
    """Jobs of one category are assumed to behave alike."""
    user: tuple[str, ...]
    pool: tuple[str, ...]
    """The virtual cluster it was submitted to; empty where there is only one."""
    source: str
    """The file or generator it came from, for messages."""
    kind: str
    """The format that was detected, e.g. `philly-csv`."""
    notices: tuple[str, ...] = ()
    """Sentences for the user: rows left out and why, clocks shifted."""

    def __len__(self) -> int:
        return len(self.name)

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Trace:
        """The same trace with only these rows, submit times as they were."""
        index = np.arange(len(self))[rows]
        pick = index.tolist()
        columns: dict[str, object] = {}
        for field in ("submit_seconds", "workers", "minimum", "maximum", "duration_seconds", "devices_per_worker", "priority"):
            columns[field] = getattr(self, field)[index]
        for field in ("name", "model", "category", "user", "pool"):
            values = getattr(self, field)
            columns[field] = tuple(values[i] for i in pick)
        return replace(self, **columns)  # type: ignore[arg-type]

    def elastic(self, least: float, most: float) -> Trace:
        """Every job may have from `least` to `most` times the workers it asked for."""
        if not 0 < least <= most:
            raise UserError(f"--elastic {least:g}x:{most:g}x: the first multiple must be above 0 and not above the second.")
        low = np.maximum(1, np.floor(self.workers * least)).astype(np.int64)
        high = np.maximum(low, np.floor(self.workers * most)).astype(np.int64)
        return replace(self, minimum=low, maximum=high, workers=np.clip(self.workers, low, high))
