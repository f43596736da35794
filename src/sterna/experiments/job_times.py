"""Times of every job of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats


@dataclass(frozen=True, kw_only=True)
class JobTimes:
    """Seconds on the clock of the trace, one entry per simulated job in submit order; infinite: never reached."""

    row: Ints
    """Row of the job in the trace."""
    submit: Floats
    start: Floats
    finish: Floats
    wait: Floats
    stops: Ints
    """Times that the policy stopped the job."""

    @cached_property
    def is_finished(self) -> Bools:
        return np.isfinite(self.finish)

    @cached_property
    def completion(self) -> Floats:
        """Return the completion times of the jobs that finished."""
        times: Floats = (self.finish - self.submit)[self.is_finished]
        return times

    @property
    def makespan_seconds(self) -> float:
        return float(self.finish[self.is_finished].max() - self.submit[0]) if len(self.completion) else 0.0
