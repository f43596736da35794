"""What not knowing costs: policies that use curves or remaining work, on Voda's jobs, with the truth and without it.

For `sterna reproduce knowledge` and for docs/learning.md. Each seed is compared with itself under the truth: same
arrivals, same costs, same rate limit. The workload is an easy one to learn on (jobs of a category are equal, steps take
exactly as long as each other, and queues form only after every category has been seen), so cases that are harder stand
beside it; only the first has a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.knowledge import LEARNED, TRUE, Knowledge, Source, make_backend
from sterna.backends.simulated.learned_knowledge import LearningBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import RoundLoop
from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Progress, Reproduction, Row
from sterna.experiments.reproduction.voda.model import PAUSE_SECONDS, RATE_LIMIT_SECONDS
from sterna.experiments.reproduction.voda.ours import POLICIES as SAME_AS_VODA
from sterna.experiments.reproduction.voda.ours import STICKY
from sterna.experiments.reproduction.voda.work import calibrated
from sterna.model.cluster import Bools
from sterna.model.learned import Learned
from sterna.model.speedup import Floats
from sterna.wiring import make_rules
from sterna.workloads.published import voda

POLICIES = (SAME_AS_VODA["ElasticTiresias"], "ffdl", "afs-l", "srjf", "elastic-srjf")
"""Those that read curves or remaining work."""

TARGET_PERCENT = 10.0
"""The most that later jobs may lose in mean completion time."""

_UNLIKE = 0.3
"""How much step times differ within a category where they do: sigma of a log-normal factor."""
_NOISY = Knowledge(Source.NOISY, 0.3)
_APART_SECONDS = 100_000.0
"""Between jobs that are to run alone."""


class Case(NamedTuple):
    """One way of not knowing, and the arrivals it is tried on."""

    words: str
    losses: Callable[[str, int], float]
    """Mean completion over that under the truth, less one, in percent; by policy and seed."""
    target: float | None = None


@dataclass(frozen=True)
class _Ran:
    completion_seconds: Floats
    is_later: Bools
    """Not the first job of its category."""


def reproduce(seeds: int, progress: Progress | None = None) -> Reproduction:
    """What each policy loses, by case; the note has the interval and the worst seed."""
    rows: list[Row] = []
    for done, policy in enumerate(POLICIES, 1):
        rows += _rows(policy, seeds)
        if progress is not None:
            progress(done, len(POLICIES))
    return Reproduction(
        "knowledge",
        "What does a policy lose that has to learn how jobs speed up, or is told wrong?",
        rows,
        (
            "Voda's 24 jobs on 3 x 4 devices, arrivals drawn anew for each seed; each seed is compared with itself "
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
        note = f"{interval.worded()}; worst {max(values):+.1f}"
        holds = None if target is None else interval.mean <= target
        yield Row(f"{name}, {words}", "mean completion, loss in %", None, target, interval.mean, holds, note)


def _later_jobs(policy: str, seed: int) -> float:
    jobs = _workload(voda.unseen_arrivals(seed))
    truth, learned = _run(policy, jobs, TRUE), _run(policy, jobs, LEARNED)
    return _loss(learned.completion_seconds[truth.is_later], truth.completion_seconds[truth.is_later])


def _all_jobs(policy: str, seed: int) -> float:
    return _compared(policy, _workload(voda.unseen_arrivals(seed)), LEARNED)


def _taught(policy: str, seed: int) -> float:
    return _compared(policy, _workload(voda.unseen_arrivals(seed)), LEARNED, known=_one_of_each(policy))


def _at_once(policy: str, seed: int) -> float:
    """Everything is contested before anything was seen."""
    submitted = [job._replace(at_seconds=0.0) for job in voda.unseen_arrivals(seed)]
    return _compared(policy, _workload(submitted), LEARNED)


def _unlike(policy: str, seed: int) -> float:
    """Steps of a category's jobs take from job to job longer or shorter: users say how many, and that misleads."""
    jobs = _workload(voda.unseen_arrivals(seed))
    factor = np.exp(_UNLIKE * np.random.default_rng([seed, 30]).standard_normal(len(jobs)))
    assert jobs.steps is not None
    return _compared(policy, replace(jobs, steps=jobs.steps * factor), LEARNED)


def _noisy(policy: str, seed: int) -> float:
    return _compared(policy, _workload(voda.unseen_arrivals(seed)), _NOISY, seed=seed)


CASES: Sequence[Case] = (
    Case("learned, later jobs", _later_jobs, TARGET_PERCENT),
    Case("learned, all jobs", _all_jobs),
    Case("learned, after one job of each alone", _taught),
    Case("learned, all submitted at once", _at_once),
    Case("learned, jobs of a category unlike by 30 %", _unlike),
    Case("noisy:0.3", _noisy),
)


def _workload(submitted: Sequence[voda.SubmittedJob]) -> Workload:
    """With a step for each epoch, as Voda's users say how many."""
    jobs = workload_of(voda.trace_of(submitted, calibrated().work_seconds))
    return replace(jobs, steps=np.array([float(voda.EPOCHS[model]) for model in jobs.category]))


def _compared(
    policy: str, jobs: Workload, knowledge: Knowledge, *, seed: int = 0, known: Learned | None = None
) -> float:
    truth = _run(policy, jobs, TRUE)
    return _loss(_run(policy, jobs, knowledge, seed, known).completion_seconds, truth.completion_seconds)


def _loss(without: Floats, with_truth: Floats) -> float:
    return 100 * (float(without.mean()) / float(with_truth.mean()) - 1)


def _costs() -> Costs:
    return Costs(PAUSE_SECONDS, PAUSE_SECONDS, calibrated().longest_epoch_seconds / 2)


def _run(policy: str, jobs: Workload, knowledge: Knowledge, seed: int = 0, known: Learned | None = None) -> _Ran:
    world = make_backend(
        knowledge, jobs, simulated_nodes(voda.NODES), SimulationConfig(costs=_costs()), seed=seed, known=known
    )
    RoundLoop(RateLimited(world, RATE_LIMIT_SECONDS), make_rules(policy, STICKY)).run()
    first = {jobs.category.index(category) for category in jobs.category}
    is_later = np.array([row not in first for row in range(len(jobs))])
    return _Ran(np.array(world.finish) - jobs.submit, is_later)


@cache
def _one_of_each(policy: str) -> Learned:
    """What is known after one job of each category has run with the cluster to itself."""
    alone = [
        voda.SubmittedJob(f"first-{model}", model, _APART_SECONDS * number) for number, model in enumerate(voda.EPOCHS)
    ]
    world = LearningBackend(_workload(alone), simulated_nodes(voda.NODES), SimulationConfig(costs=_costs()))
    RoundLoop(RateLimited(world, RATE_LIMIT_SECONDS), make_rules(policy, STICKY)).run()
    return world.estimates.learned
