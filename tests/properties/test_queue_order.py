"""The first job in a policy's order that fits into the cluster runs, wherever the others are placed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import AJob, ClusterSpec, decided
from tests.properties.clusters import a_cluster, snapshot_of

Key = tuple[float | str, ...]


def by_submission(job: AJob) -> Key:
    return -job.priority, job.submit, job.name


def by_length(job: AJob) -> Key:
    return -job.priority, job.remaining, job.submit, job.name


ORDERS: dict[str, Callable[[AJob], Key]] = {
    "fifo": by_submission,
    "fifo:preempt=false": by_submission,
    "elastic-fifo": by_submission,
    "ffdl": by_submission,
    "srjf": by_length,
    "elastic-srjf": by_length,
    "afs-l": by_length,
}


@pytest.mark.parametrize(("policy", "placement"), list(product(ORDERS, ("stay", "pack", "spread", "topology"))))
@settings(max_examples=25)
@given(seed=st.integers(0, 1_000_000), jobs=st.integers(2, 8), nodes=st.integers(1, 4))
def test_the_first_that_could_run_runs(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    cluster = a_cluster(seed, jobs, nodes, placement)
    specs = [replace(job, on=(), ps_on=(), slots=()) for job in cluster.jobs]
    able = [job for job in specs if could_run(job, cluster, placement)]
    given_ = decided(snapshot_of(replace(cluster, jobs=tuple(specs))), policy, placement).allocation
    if able:
        assert given_[min(able, key=ORDERS[policy]).name] > 0


def could_run(job: AJob, cluster: ClusterSpec, placement: str) -> bool:
    alone = replace(job, maximum=job.minimum, request=job.minimum)
    return bool(decided(snapshot_of(replace(cluster, jobs=(alone,))), "fifo", placement).allocation[job.name])
