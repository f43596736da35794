"""Cost of learned and noisy knowledge: policies that use curves or remaining work, on Voda's jobs.

For `sterna reproduce knowledge` and docs/learning.md. Each seed is compared with itself under true knowledge: same
arrivals, same costs, same rate limit. The workload is easy to learn (jobs of a category are equal, steps take equally
long, and queues form only after every category has been seen), so there are harder cases too; only the first has a
target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.knowledge import LEARNED, TRUE, Knowledge, KnowledgeSource, make_backend
from sterna.backends.simulated.learned_knowledge import LearningBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import RoundLoop
from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Reproduction, Row, TargetBand, judged_row
from sterna.experiments.reproduction.voda.model import PAUSE_SECONDS, RATE_LIMIT_SECONDS
from sterna.experiments.reproduction.voda.ours import POLICIES as SAME_AS_VODA
from sterna.experiments.reproduction.voda.ours import STAYING
from sterna.experiments.reproduction.voda.work import calibrate_work
from sterna.model.cluster import Bools
from sterna.model.learned import Learned
from sterna.model.speedup import Floats
from sterna.wiring import make_rules
from sterna.workloads.published import voda

POLICIES = (SAME_AS_VODA["ElasticTiresias"], "ffdl", "afs-l", "srjf", "elastic-srjf")
"""Policies that read curves or remaining work."""

TARGET_PERCENT = 10.0
"""Upper bound on the loss of later jobs in mean completion time."""

_UNLIKE = 0.3
"""Sigma of the log-normal factor by which step times differ within a category."""
_NOISY = Knowledge(KnowledgeSource.NOISY, 0.3)
_APART_SECONDS = 100_000.0
"""Gap between jobs, so that each runs alone."""


class KnowledgeCase(NamedTuple):
    """One kind of incomplete knowledge, and its arrivals."""

    words: str
    losses: Callable[[str, int], float]
    """Increase of the mean completion over that under the truth, in percent; by policy and seed."""
    target: float | None = None


@dataclass(frozen=True)
class _KnowledgeRun:
    completion_seconds: Floats
    is_later: Bools
    """False for the first job of its category."""


def reproduce(seeds: int, progress: ProgressCallback | None = None) -> Reproduction:
    """Measure the loss of each policy by case; the note has the interval and the worst seed."""
    rows: list[Row] = []
    for done, policy in enumerate(POLICIES, 1):
        rows += _rows(policy, seeds)
        if progress is not None:
            progress(done, len(POLICIES))
    return Reproduction(
        "knowledge",
        "What does a policy lose that has to learn how jobs speed up, or has wrong estimates?",
        rows,
        (
            "Voda's 24 jobs on 3 x 4 devices, arrivals drawn for each seed; each seed is compared with itself "
            "under the truth.",
            "Only later jobs, those after the first of their category, have a target. The others are harder on "
            "purpose: everything at once, and jobs of a category that are not alike.",
        ),
    )


def _rows(policy: str, seeds: int) -> Iterator[Row]:
    name = policy.partition(":")[0]
    for words, losses, target in CASES:
        values = [losses(policy, seed) for seed in range(seeds)]
        interval = interval_of(values)
        note = f"{interval.describe()}; worst {max(values):+.1f}"
        case, metric = f"{name}, {words}", "mean completion, loss in %"
        if target is None:
            yield Row(case, metric, None, None, interval.mean, None, note)
        else:
            yield judged_row(case, metric, None, TargetBand(high=target), interval.mean, note)


def _later_jobs(policy: str, seed: int) -> float:
    jobs = _workload(voda.unseen_arrivals(seed))
    truth, learned = _run(policy, jobs, TRUE), _run(policy, jobs, LEARNED)
    return _loss(learned.completion_seconds[truth.is_later], truth.completion_seconds[truth.is_later])


def _all_jobs(policy: str, seed: int) -> float:
    return _compare_with_truth(policy, _workload(voda.unseen_arrivals(seed)), LEARNED)


def _after_one_of_each(policy: str, seed: int) -> float:
    return _compare_with_truth(policy, _workload(voda.unseen_arrivals(seed)), LEARNED, known=_one_of_each(policy))


def _at_once(policy: str, seed: int) -> float:
    """Submit all jobs at once, so that devices are contested before anything is learned."""
    submitted = [job._replace(at_seconds=0.0) for job in voda.unseen_arrivals(seed)]
    return _compare_with_truth(policy, _workload(submitted), LEARNED)


def _unlike(policy: str, seed: int) -> float:
    """Vary the step time from job to job of a category, so that the number of steps misleads."""
    jobs = _workload(voda.unseen_arrivals(seed))
    factor = np.exp(_UNLIKE * np.random.default_rng([seed, 30]).standard_normal(len(jobs)))
    assert jobs.steps is not None
    return _compare_with_truth(policy, replace(jobs, steps=jobs.steps * factor), LEARNED)


def _noisy(policy: str, seed: int) -> float:
    return _compare_with_truth(policy, _workload(voda.unseen_arrivals(seed)), _NOISY, seed=seed)


CASES: Sequence[KnowledgeCase] = (
    KnowledgeCase("learned, later jobs", _later_jobs, TARGET_PERCENT),
    KnowledgeCase("learned, all jobs", _all_jobs),
    KnowledgeCase("learned, after one job of each alone", _after_one_of_each),
    KnowledgeCase("learned, all submitted at once", _at_once),
    KnowledgeCase("learned, jobs of a category unlike by 30 %", _unlike),
    KnowledgeCase("noisy:0.3", _noisy),
)


def _workload(submitted: Sequence[voda.SubmittedJob]) -> Workload:
    """Make a workload with one step per epoch, as Voda's users declare them."""
    jobs = workload_of(voda.trace_of(submitted, calibrate_work().work_seconds))
    return replace(jobs, steps=np.array([float(voda.EPOCHS[model]) for model in jobs.category]))


def _compare_with_truth(
    policy: str, jobs: Workload, knowledge: Knowledge, *, seed: int = 0, known: Learned | None = None
) -> float:
    truth = _run(policy, jobs, TRUE)
    return _loss(_run(policy, jobs, knowledge, seed, known).completion_seconds, truth.completion_seconds)


def _loss(without: Floats, with_truth: Floats) -> float:
    return 100 * (float(without.mean()) / float(with_truth.mean()) - 1)


def _costs() -> Costs:
    return Costs(
        restart_seconds=PAUSE_SECONDS,
        rescale_seconds=PAUSE_SECONDS,
        checkpoint_seconds=calibrate_work().longest_epoch_seconds,
    )


def _run(
    policy: str, jobs: Workload, knowledge: Knowledge, seed: int = 0, known: Learned | None = None
) -> _KnowledgeRun:
    backend = make_backend(
        knowledge, jobs, simulated_nodes(voda.NODES), SimulationConfig(costs=_costs()), seed=seed, known=known
    )
    RoundLoop(RateLimited(backend, RATE_LIMIT_SECONDS), make_rules(policy, STAYING)).run()
    first = {jobs.category.index(category) for category in jobs.category}
    is_later = np.array([row not in first for row in range(len(jobs))])
    return _KnowledgeRun(np.array(backend.finish) - jobs.submit, is_later)


@cache
def _one_of_each(policy: str) -> Learned:
    """Return the knowledge after one job of each category has run alone."""
    alone = [
        voda.SubmittedJob(f"first-{model}", model, _APART_SECONDS * number) for number, model in enumerate(voda.EPOCHS)
    ]
    backend = LearningBackend(_workload(alone), simulated_nodes(voda.NODES), SimulationConfig(costs=_costs()))
    RoundLoop(RateLimited(backend, RATE_LIMIT_SECONDS), make_rules(policy, STAYING)).run()
    return backend.estimates.learned
