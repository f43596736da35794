"""Run several policies and the baseline on one scenario, in parallel on the machine's cores.

Each process receives the scenario once. Results equal those of `run_simulation`, except for the wall time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sterna.engine.registry import RuleKind
from sterna.errors import UserError
from sterna.experiments.frames import make_frame
from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.result import COLUMNS, METRIC_COLUMNS, Result, Summary, describe_jobs
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.settings import BASELINE_POLICY
from sterna.wiring import is_registered_by_hand, make_placement, make_policy, rules_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

ALL = "all"
LOWER_IS_BETTER = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s", "avg_wait_s")
HIGHER_IS_BETTER = ("utilization",)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results of all policies on one scenario, the baseline first."""

    results: tuple[Result, ...]

    @property
    def baseline(self) -> Result:
        return self.results[0]

    def ratio(self, result: Result, key: str) -> float | None:
        """Divide a number of a result by the baseline's; None if either is missing or the baseline's is 0."""
        mine, theirs = result.number(key), self.baseline.number(key)
        return None if mine is None or not theirs else mine / theirs

    def __repr__(self) -> str:
        return f"Comparison({', '.join(result.policy for result in self.results)})"

    def table(self, frame: str | None = None) -> Any:
        """Return one row per policy, with `ratio`, as a data frame; `frame` as in `Result.jobs`."""
        columns = {
            key: [result.number(key) for result in self.results] for key, _ in (*COLUMNS, *self.baseline.metric_columns)
        }
        ratios = [self.ratio(result, "avg_jct_s") for result in self.results]
        policies = [result.policy for result in self.results]
        return make_frame({"policy": policies, "ratio": ratios, **columns}, frame)

    def plot(self, what: str = "mean") -> go.Figure:
        """Return a plotly figure: `mean`, `completion`, `utilization`, `queue` or `allocation`."""
        from sterna.experiments.report.plots import plot_comparison

        return plot_comparison(self, what)

    @property
    def about_ratios(self) -> str:
        return (
            f"ratio: mean completion time over that of {self.baseline.policy}, what people run today (first come, "
            "first served, gaps filled, no job stopped); below 1 is better."
        )

    @property
    def about_metrics(self) -> str:
        bound = self.baseline.lower_bound
        least = "" if bound is None else f" ({bound.mean_seconds:,.0f} s)"
        return (
            f"over bound: mean completion time over the least{least} that any policy can reach. slowdown: completion "
            "time over run time alone as requested. fairness: completion time over that with an equal part of the "
            "cluster; up to 1 is fair. lost: device time of restarts and of work thrown away, first starts left out."
        )

    @cached_property
    def best(self) -> dict[str, str]:
        """Map keys of the summary to the policy with the best value, the first of a tie; keys in which all tie are left
        out."""
        best = {}
        lower = (*LOWER_IS_BETTER, *(key for key, _ in METRIC_COLUMNS))
        for keys, choose in ((lower, min), (HIGHER_IS_BETTER, max)):
            for key in keys:
                values = {
                    result.policy: number for result in self.results if (number := result.number(key)) is not None
                }
                if len({result.number(key) for result in self.results}) > 1:
                    best[key] = choose(values, key=values.__getitem__)
        return best

    def is_best(self, result: Result, key: str) -> bool:
        """Return True if no result has a better value and not all have the same."""
        return key in self.best and result.number(key) == self._by_policy[self.best[key]].number(key)

    @cached_property
    def _by_policy(self) -> dict[str, Result]:
        return {result.policy: result for result in self.results}

    @property
    def left_out(self) -> list[str]:
        """Return sentences about the jobs that no average includes."""
        unfinished = [describe_jobs(f"never finished under {each.policy}", each.unfinished) for each in self.results]
        return sum(unfinished, self.baseline.never_fit)

    @cached_property
    def summary(self) -> Summary:
        """Return the JSON document of `sterna compare`."""
        return {
            "baseline": self.baseline.policy,
            "best": self.best,
            "results": [result.summary | {"ratios": self._ratios(result)} for result in self.results],
        }

    def _ratios(self, result: Result) -> dict[str, float | None]:
        ratios = {key: self.ratio(result, key) for key in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER)}
        return {key: None if ratio is None else round(ratio, 6) for key, ratio in ratios.items()}


def parse_policies(text: str) -> list[str]:
    """Parse a list with commas, or `all` for the built-in policies with their defaults; drops duplicates."""
    if text.strip() == ALL:
        return [info.name for info in rules_of(RuleKind.POLICY)]
    specs = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not any(specs):
        raise UserError("--policies is empty: write all, or policies with commas between them, e.g. fifo,srjf.")
    if not all(specs):
        raise UserError(f"--policies {text}: there is nothing between two commas or at an end; remove a comma.")
    for spec in specs:
        make_policy(spec)
    return specs


def run_comparison(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    cores: int | None = None,
    progress: ProgressCallback | None = None,
    detailed: bool = False,
) -> Comparison:
    """Run the baseline and every policy on at most `cores` processes; `progress` counts the runs that are done."""
    baseline = make_policy(BASELINE_POLICY)
    others = [spec for spec in dict.fromkeys(policies) if make_policy(spec) != baseline]
    specs = [BASELINE_POLICY, *others]
    for spec in specs:
        make_placement(scenario.placement_of(spec))
    processes = min(len(specs), cores or os.cpu_count() or 1)
    if multiprocessing.get_start_method() != "fork" and any(map(is_registered_by_hand, specs)):
        processes = 1  # a new interpreter would not know a rule that was defined in a notebook
    if processes == 1:
        return Comparison(tuple(_run_in_turn(scenario, specs, progress, detailed)))
    return Comparison(tuple(_run_in_parallel(scenario, specs, processes, progress, detailed)))


def _run_in_turn(
    scenario: Scenario, specs: Sequence[str], progress: ProgressCallback | None, detailed: bool
) -> list[Result]:
    results = []
    for spec in specs:
        results.append(run_simulation(scenario, spec, detailed=detailed))
        if progress:
            progress(len(results), len(specs))
    return results


def _run_in_parallel(
    scenario: Scenario, specs: Sequence[str], processes: int, progress: ProgressCallback | None, detailed: bool
) -> list[Result]:
    pool = ProcessPoolExecutor(processes, initializer=_prepare, initargs=(scenario, detailed))
    try:
        futures = [pool.submit(_run, spec) for spec in specs]
        pending: set[Future[Result]] = set(futures)
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
            if progress:
                progress(len(futures) - len(pending), len(futures))
        # One scenario for all results, instead of a copy from each process.
        return [replace(future.result(), scenario=scenario) for future in futures]
    except BrokenProcessPool:
        raise UserError(
            "A simulation was ended from outside, most often because memory ran out; compare fewer policies at once or "
            "take fewer jobs (--limit)."
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_prepared: list[tuple[Scenario, bool]] = []
"""Scenario and `detailed` of this process of the pool, set by its initializer."""


def _prepare(scenario: Scenario, detailed: bool) -> None:
    # An interrupt from the keyboard reaches every process; workers end without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prepared[:] = [(scenario, detailed)]


def _run(spec: str) -> Result:
    scenario, detailed = _prepared[0]
    return run_simulation(scenario, spec, detailed=detailed)
