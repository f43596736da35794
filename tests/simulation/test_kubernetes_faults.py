"""The operator under seeded faults: invariants hold throughout, and every job succeeds once the faults end."""

from __future__ import annotations

import random

import pytest

from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_client import Faults
from tests.simulation.kubernetes_runs import Cluster, is_over

ROUGH = Faults(
    lost_before=0.03,
    lost_after=0.03,
    conflict=0.05,
    too_many=0.05,
    expired=0.01,
    broken=0.02,
    duplicated=0.05,
)


def a_rough_cluster(seed: int) -> Cluster:
    cluster = Cluster(seed, ROUGH)
    for number in range(4):
        cluster.nodes.add(f"node-{number}", gpus=4)
    return cluster


def submit_jobs(cluster: Cluster, luck: random.Random, count: int = 12) -> list[str]:
    names = []
    for number in range(count):
        name = f"job-{number:02d}"
        least = luck.choice([1, 1, 2, 3, 5])
        if luck.random() < 0.4:
            cluster.submit_tf(name, least, least + luck.randrange(3), seconds=luck.uniform(5, 40))
        else:
            cluster.submit(name, least, most=least + luck.randrange(3), seconds=luck.uniform(5, 40))
        names.append(name)
        cluster.run(luck.uniform(0.0, 3.0))
    return names


def settle(cluster: Cluster, seconds: float = 900.0) -> None:
    """Mend everything, and give it time."""
    cluster.kube.heal()
    for number in range(4):
        cluster.heal(f"node-{number}")
    cluster.run(seconds)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_server_does_no_device_is_used_twice_and_every_job_completes(seed: int) -> None:
    cluster = a_rough_cluster(seed)
    cluster.start()
    names = submit_jobs(cluster, random.Random(seed))
    settle(cluster)
    assert cluster.phases() == dict.fromkeys(names, "Succeeded")
    assert [pod["metadata"]["name"] for pod in cluster.pods() if not is_over(pod)] == []


@pytest.mark.parametrize("seed", range(6))
def test_an_operator_that_dies_at_any_moment_loses_no_job_and_runs_none_twice(seed: int) -> None:
    """DRAGON-48."""
    cluster = a_rough_cluster(seed)
    cluster.start()
    luck = random.Random(seed)
    names = []
    for number in range(10):
        least = luck.choice([1, 2, 4])
        cluster.submit(f"job-{number}", least, most=least + 1, seconds=luck.uniform(5, 30))
        names.append(f"job-{number}")
        cluster.run(luck.uniform(0.0, 2.0))
        if luck.random() < 0.6:
            cluster.crash(luck.uniform(0.05, 5.0))
    settle(cluster)
    assert cluster.phases(TRAINING_JOBS) == dict.fromkeys(names, "Succeeded")


@pytest.mark.parametrize("seed", range(6))
def test_nodes_that_are_lost_and_come_back_cost_time_but_no_job(seed: int) -> None:
    """DRAGON-50."""
    cluster = a_rough_cluster(seed)
    cluster.start()
    luck = random.Random(seed)
    names = submit_jobs(cluster, luck, 8)
    for _ in range(4):
        node = f"node-{luck.randrange(4)}"
        cluster.lose(node, evicts=luck.random() < 0.5)
        cluster.run(luck.uniform(1.0, 60.0))
        cluster.heal(node)
        cluster.run(luck.uniform(0.0, 10.0))
    settle(cluster)
    assert cluster.phases() == dict.fromkeys(names, "Succeeded")
