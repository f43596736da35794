"""Several policies on one scenario, side by side on the machine's cores, beside what people run today.

The scenario goes to each process once. Every run is the same as `simulate` would make it alone, only its wall time may
suffer from the company.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property

from sterna.engine.registry import RuleKind
from sterna.errors import UserError
from sterna.experiments.result import Result, Summary, jobs_that
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import Progress, simulate
from sterna.settings import BASELINE_POLICY
from sterna.wiring import make_placement, make_policy, rules_of

ALL = "all"
LOWER_IS_BETTER = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s", "avg_wait_s")
HIGHER_IS_BETTER = ("utilization",)


@dataclass(frozen=True)
class Comparison:
    """Results of all policies, the baseline first."""

    results: tuple[Result, ...]

    @property
    def baseline(self) -> Result:
        return self.results[0]

    def ratio(self, result: Result, key: str) -> float | None:
        """A number of a result divided by the baseline's; None where there is nothing to divide by."""
        mine, theirs = result.number(key), self.baseline.number(key)
        return None if mine is None or not theirs else mine / theirs

    @property
    def about_ratios(self) -> str:
        return (
            f"ratio: mean completion time over that of {self.baseline.policy}, what people run today (first come, "
            "first served, gaps filled, nobody stopped); below 1 is better."
        )

    @cached_property
    def best(self) -> dict[str, str]:
        """Key of the summary: the policy with the best value, the first of those that tie; keys in which all tie are
        left out."""
        best = {}
        for keys, choose in ((LOWER_IS_BETTER, min), (HIGHER_IS_BETTER, max)):
            for key in keys:
                values = {
                    result.policy: number for result in self.results if (number := result.number(key)) is not None
                }
                if len({result.number(key) for result in self.results}) > 1:
                    best[key] = choose(values, key=values.__getitem__)
        return best

    def is_best(self, result: Result, key: str) -> bool:
        """Whether nobody has a better value; several may have the same, but not all."""
        return key in self.best and result.number(key) == self._by_policy[self.best[key]].number(key)

    @cached_property
    def _by_policy(self) -> dict[str, Result]:
        return {result.policy: result for result in self.results}

    @property
    def left_out(self) -> list[str]:
        """Which jobs are in no average, and why."""
        unfinished = [jobs_that(f"never finished under {each.policy}", each.unfinished) for each in self.results]
        return sum(unfinished, self.baseline.never_fit)

    @cached_property
    def summary(self) -> Summary:
        """The JSON document of `sterna compare`."""
        return {
            "baseline": self.baseline.policy,
            "best": self.best,
            "results": [result.summary | {"ratios": self._ratios(result)} for result in self.results],
        }

    def _ratios(self, result: Result) -> dict[str, float | None]:
        ratios = {key: self.ratio(result, key) for key in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER)}
        return {key: None if ratio is None else round(ratio, 6) for key, ratio in ratios.items()}


def policies_of(text: str) -> list[str]:
    """The policies of a list with commas, or `all` that are built in with their defaults; checked, each once."""
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


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    cores: int | None = None,
    progress: Progress | None = None,
    detailed: bool = False,
) -> Comparison:
    """Run the baseline and every policy; `progress` hears of runs that are done."""
    baseline = make_policy(BASELINE_POLICY)
    others = [spec for spec in dict.fromkeys(policies) if make_policy(spec) != baseline]
    specs = [BASELINE_POLICY, *others]
    for spec in specs:
        make_placement(scenario.placement_of(spec))
    processes = min(len(specs), cores or os.cpu_count() or 1)
    if processes == 1:
        return Comparison(tuple(_in_turn(scenario, specs, progress, detailed)))
    return Comparison(tuple(_side_by_side(scenario, specs, processes, progress, detailed)))


def _in_turn(scenario: Scenario, specs: Sequence[str], progress: Progress | None, detailed: bool) -> list[Result]:
    results = []
    for spec in specs:
        results.append(simulate(scenario, spec, detailed=detailed))
        if progress:
            progress(len(results), len(specs))
    return results


def _side_by_side(
    scenario: Scenario, specs: Sequence[str], processes: int, progress: Progress | None, detailed: bool
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
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise UserError(
            "A simulation was ended from outside, most often because memory ran out; compare fewer policies at once or "
            "take fewer jobs (--limit)."
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_prepared: list[tuple[Scenario, bool]] = []
"""What a process of the pool was given when it began."""


def _prepare(scenario: Scenario, detailed: bool) -> None:
    # An interrupt from the keyboard reaches every process; these are to end without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prepared[:] = [(scenario, detailed)]


def _run(spec: str) -> Result:
    scenario, detailed = _prepared[0]
    return simulate(scenario, spec, detailed=detailed)
