"""Cases of the SpeCon study: combinations of rules, ablations, and their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sterna.experiments.reproduction.specon.bounds import pool_finish_times
from sterna.experiments.reproduction.specon.simulation import Draw, SpeconRun, run
from sterna.model.speedup import Floats

BASELINES = ("count", "skew")

ERROR = 0.3
"""Largest relative error of the estimated work, in the case with wrong estimates."""


class RuleCase(NamedTuple):
    """A combination of rules with a label."""

    label: str
    migration: str = "none"
    cpu_share: str = "equal"
    keeps_map: bool = False
    is_misled: bool = False
    only_informs: bool = True
    """No row of the case has a target."""


INFORMING_SEEDS = 8
"""Upper bound on seeds of cases that only inform; their rows state the interval that this leaves."""

RAW = RuleCase("raw SpeCon", "specon:strict=true", only_informs=False)
BOTH = RuleCase("both", "balance", "finish", only_informs=False)
CASES = (
    RAW,
    RuleCase("repaired SpeCon", "specon"),
    RuleCase("moves only", "balance"),
    RuleCase("shares only", "none", "finish"),
    RuleCase("shares only, map kept", "none", "finish", keeps_map=True),
    BOTH,
    RuleCase("both, work known to 30 %", "balance", "finish", is_misled=True, only_informs=False),
    RuleCase("shares by growth", "none", "growth:strict=true"),
    RuleCase("both, objective quality", "balance", "finish:objective=quality"),
)
ABLATIONS = (
    RuleCase("both, no growth", "balance:growth=false", "finish"),
    RuleCase("both, no price", "balance:priced=false", "finish"),
    RuleCase("both, raw rule", "specon:strict=true", "finish"),
    RuleCase("both, no stickiness", "balance:sticky=false:most=1000", "finish"),
)

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4)
INTERVALS = (5.0, 10.0, 20.0, 40.0, 80.0)
SWEEP_SEEDS = 2


class CaseChange(NamedTuple):
    """Change of one run against the default scheduler on the same draw in percent, and moves per job."""

    mean: float
    best: float
    worst: float
    makespan: float
    quality: float
    """Mean time to 95 % of the final quality."""
    moves: float


def is_run(case: RuleCase, baseline: str) -> bool:
    """Return False for `keeps_map` on `skew`, which has only one map."""
    return baseline == "count" or not case.keeps_map


def run_case(case: RuleCase, drawn: Draw, baseline: str, seed: int) -> SpeconRun:
    believed = _distort_work(drawn.workload.work, seed) if case.is_misled else None
    return run(drawn, baseline, case.migration, case.cpu_share, keeps_map=case.keeps_map, believed=believed)


def _distort_work(work: Floats, seed: int) -> Floats:
    believed: Floats = work * np.random.default_rng([seed, 53]).uniform(1 - ERROR, 1 + ERROR, len(work))
    return believed


def change_of(run: SpeconRun, default: SpeconRun) -> CaseChange:
    single = run.completion / default.completion
    return CaseChange(
        _percent(run.completion.mean(), default.completion.mean()),
        100 * (float(single.min()) - 1),
        100 * (float(single.max()) - 1),
        _percent(run.makespan, default.makespan),
        _percent(run.quality.mean(), default.quality.mean()),
        len(run.moves) / len(run.completion),
    )


def bounds_of(drawn: Draw, default: SpeconRun) -> tuple[float, float]:
    """Return the change of the mean under shortest first, and of the makespan under longest first, with one pool."""
    shortest = np.array(pool_finish_times(drawn.workload)) - drawn.workload.submit
    longest = max(pool_finish_times(drawn.workload, longest_first=True))
    return _percent(shortest.mean(), default.completion.mean()), _percent(longest, default.makespan)


def _percent(value: float, default: float) -> float:
    return 100 * (float(value) / float(default) - 1)


@dataclass
class Outcomes:
    """Measurements on one baseline."""

    changes: dict[str, list[CaseChange]] = field(default_factory=dict)
    """One entry per seed, by case."""
    shortest: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)
    first: dict[str, SpeconRun] = field(default_factory=dict)
    """Runs of the first seed, for figures."""
    completion: list[Floats] = field(default_factory=list)
    """Completion times under the default scheduler, one entry per seed."""

    def of(self, label: str, metric: str) -> list[float]:
        return [getattr(change, metric) for change in self.changes[label]]

    def fewer_seeds(self, label: str) -> str:
        """Return the end of a note if the case was run on fewer seeds than the baseline."""
        count = len(self.changes[label])
        return f"; {count} seeds" if count < len(self.completion) else ""

    def mean(self, label: str, metric: str) -> float:
        return float(np.mean(self.of(label, metric)))


@dataclass
class SpeconStudy:
    """Measurements on both baselines, and the sweep of SpeCon's two parameters."""

    outcomes: dict[str, Outcomes]
    sweep: Sequence[Sequence[float]]
    """Change of the mean on `skew` in percent, by alpha and interval."""
    seeds: int
