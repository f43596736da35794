"""What is run for the SpeCon study: rules side by side, each idea switched off in turn, and what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sterna.experiments.reproduction.specon.bounds import pooled
from sterna.experiments.reproduction.specon.simulation import Run, Seeded, run
from sterna.model.speedup import Floats

BASELINES = ("count", "skew")

ERROR = 0.3
"""How far what is believed of a job's work may be off, either way, in the case that tries that."""


class Case(NamedTuple):
    """Rules, and how to call them."""

    label: str
    migration: str = "none"
    cpu_share: str = "equal"
    keeps_map: bool = False
    is_misled: bool = False


RAW = Case("raw SpeCon", "specon:strict=true")
BOTH = Case("both", "balance", "finish")
CASES = (
    RAW,
    Case("repaired SpeCon", "specon"),
    Case("moves only", "balance"),
    Case("shares only", "none", "finish"),
    Case("shares only, map kept", "none", "finish", keeps_map=True),
    BOTH,
    Case("both, work known to 30 %", "balance", "finish", is_misled=True),
    Case("shares by growth", "none", "growth"),
    Case("both, objective quality", "balance", "finish:objective=quality"),
)
ABLATIONS = (
    Case("both, no growth", "balance:growth=false", "finish"),
    Case("both, no price", "balance:priced=false", "finish"),
    Case("both, raw rule", "specon:strict=true", "finish"),
    Case("both, no stickiness", "balance:sticky=false:most=1000", "finish"),
)

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4)
INTERVALS = (5.0, 10.0, 20.0, 40.0, 80.0)
SWEEP_SEEDS = 2


class Change(NamedTuple):
    """One run against the default scheduler on the same draw, in percent; and moves a job."""

    mean: float
    best: float
    worst: float
    makespan: float
    quality: float
    """Mean time to 95 % of the final quality."""
    moves: float


def is_run(case: Case, baseline: str) -> bool:
    """On `skew` there is only one map, so that keeping it is no case of its own."""
    return baseline == "count" or not case.keeps_map


def run_case(case: Case, drawn: Seeded, baseline: str, seed: int) -> Run:
    believed = _misled(drawn.workload.work, seed) if case.is_misled else None
    return run(drawn, baseline, case.migration, case.cpu_share, keeps_map=case.keeps_map, believed=believed)


def _misled(work: Floats, seed: int) -> Floats:
    believed: Floats = work * np.random.default_rng([seed, 53]).uniform(1 - ERROR, 1 + ERROR, len(work))
    return believed


def change_of(run: Run, default: Run) -> Change:
    single = run.completion / default.completion
    return Change(
        _percent(run.completion.mean(), default.completion.mean()),
        100 * (float(single.min()) - 1),
        100 * (float(single.max()) - 1),
        _percent(run.makespan, default.makespan),
        _percent(run.quality.mean(), default.quality.mean()),
        len(run.moves) / len(run.completion),
    )


def bounds_of(drawn: Seeded, default: Run) -> tuple[float, float]:
    """The change of the mean under shortest first, and of the makespan under longest first, with one pool."""
    shortest = np.array(pooled(drawn.workload)) - drawn.workload.submit
    longest = max(pooled(drawn.workload, longest_first=True))
    return _percent(shortest.mean(), default.completion.mean()), _percent(longest, default.makespan)


def _percent(value: float, default: float) -> float:
    return 100 * (float(value) / float(default) - 1)


@dataclass
class Outcomes:
    """Everything that was measured on one baseline."""

    changes: dict[str, list[Change]] = field(default_factory=dict)
    """By case: one entry a seed."""
    shortest: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)
    first: dict[str, Run] = field(default_factory=dict)
    """The runs of the first seed, for pictures."""
    completion: list[Floats] = field(default_factory=list)
    """Of the default scheduler, a seed each."""

    def of(self, label: str, metric: str) -> list[float]:
        return [getattr(change, metric) for change in self.changes[label]]

    def mean(self, label: str, metric: str) -> float:
        return float(np.mean(self.of(label, metric)))


@dataclass
class Study:
    """Both baselines, and SpeCon's two parameters swept."""

    outcomes: dict[str, Outcomes]
    sweep: Sequence[Sequence[float]]
    """Alpha by interval: change of the mean on `skew`, in percent."""
    seeds: int
