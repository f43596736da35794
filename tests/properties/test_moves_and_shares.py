"""Properties of every migration and every CPU share rule, shipped today or added tomorrow: rules are found, not listed.

A cluster of shared nodes follows from a seed. Without arrivals, ends or growth, rounds must converge: each job is moved
a bounded number of times, and no two jobs swap places twice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.engine.registry import RuleKind, make_rule
from sterna.model.snapshot import NEVER
from sterna.wiring import rules_of
from tests.shared_nodes import SharedCluster, SharedJob, decided

MIGRATIONS = [
    *(info.name for info in rules_of(RuleKind.MIGRATION)),
    "specon:strict=true",
    "specon:objective=quality:most=3",
    "balance:strict=true",
    "balance:threshold=0:margin=0",
]
CPU_SHARES = [*(info.name for info in rules_of(RuleKind.CPU_SHARE)), "finish:objective=quality"]
RULES = list(product(MIGRATIONS, CPU_SHARES))
MOST_ROUNDS = 400

seeds = given(seed=st.integers(0, 1_000_000), jobs=st.integers(0, 14))


def a_shared_cluster(seed: int, jobs: int) -> SharedCluster:
    """A few nodes, some crowded; jobs that hold nothing, a device each or several workers, of known or unknown work."""
    random = Random(seed)
    nodes = random.randint(1, 4)
    has_devices = random.random() < 0.3
    chosen, used = [], [0] * nodes
    for number in range(jobs):
        job = _some_shared_job(random, number, nodes, jobs, has_devices)
        for node, count in job.on:
            used[node] += count * job.devices
        chosen.append(job)
    devices = tuple(each + random.choice((0, 1, 4)) for each in used) if has_devices else ()
    closed = frozenset(random.sample(range(nodes), random.choice((0, 0, 0, 1))))
    cores = tuple(random.choice((4.0, 16.0)) for _ in range(nodes))
    restart = random.choice((0.0, 0.0, 10.0))
    return SharedCluster(tuple(chosen), cores, devices, 1000.0, restart, random.choice((-NEVER, 900.0)), closed)


def _some_shared_job(random: Random, number: int, nodes: int, jobs: int, has_devices: bool) -> SharedJob:
    on = [random.choice((0, 0, random.randrange(nodes)))]
    if random.random() < 0.2 and nodes > 1:
        on.append((on[0] + 1) % nodes)
    is_moved = random.random() < 0.2 and nodes > 1
    return SharedJob(
        f"j{number:02d}",
        tuple((node, random.choice((1, 1, 2))) for node in on),
        left=random.choice((math.nan, 40.0, 400.0, 400.0, 4000.0, 20_000.0)),
        cap=random.choice((4.0, 4.0, 1.0)),
        devices=int(has_devices),
        submit=float(random.randint(0, 3)),
        growth=random.randrange(3),
        cpu_share=random.choice((1.0, 1.0, 0.5, 3.0)),
        unsaved=random.choice((0.0, 5.0)),
        moves=int(is_moved),
        moved_at=random.choice((800.0, 950.0)) if is_moved else -NEVER,
        moved_from=(on[0] + 1) % nodes if is_moved else -1,
        evictor=random.randrange(jobs) if is_moved else -1,
        default_finish=random.choice((math.nan, 900.0, 1200.0, 5000.0)),
    )


@pytest.mark.parametrize(("migration", "cpu_share"), RULES)
@settings(max_examples=25, deadline=None)
@seeds
def test_deciding_again_on_its_own_result_changes_nothing(migration: str, cpu_share: str, seed: int, jobs: int) -> None:
    cluster = a_shared_cluster(seed, jobs)
    then = cluster.after(decided(cluster, migration, cpu_share))
    assert list(decided(then, migration, cpu_share).plan) == []


@pytest.mark.parametrize("migration", MIGRATIONS)
@settings(max_examples=40, deadline=None)
@seeds
def test_rounds_come_to_rest_and_moves_per_job_are_bounded(migration: str, seed: int, jobs: int) -> None:
    """The clock runs, but nothing arrives, ends or grows otherwise: whatever moves there are come to an end."""
    cluster = a_shared_cluster(seed, jobs)
    most = {job.name: max(job.moves, _most(migration)) for job in cluster.jobs}
    for _ in range(MOST_ROUNDS):
        decision = decided(cluster, migration, "finish")
        cluster = cluster.after(decision, min(decision.until, cluster.now + 60.0) - cluster.now or 1.0)
        if not any(action.before != action.after for action in decision.plan) and _has_rested(cluster):
            break
    else:
        pytest.fail("the rounds do not come to rest")
    assert all(job.moves <= most[job.name] for job in cluster.jobs)


def _has_rested(cluster: SharedCluster) -> bool:
    """Longer than any rule waits between two moves."""
    return all(cluster.now - job.moved_at > 120.0 for job in cluster.jobs)


@pytest.mark.parametrize("migration", MIGRATIONS)
@settings(max_examples=40, deadline=None)
@seeds
def test_victim_and_evictor_do_not_change_places_until_something_has_changed(
    migration: str, seed: int, jobs: int
) -> None:
    """However many moves a job may make."""
    endless = migration + ":most=1000" if "most" in _parameters(migration) else migration
    cluster = replace(a_shared_cluster(seed, jobs), last_event=-NEVER)
    left: set[tuple[str, int]] = set()
    for _ in range(40):
        decision = decided(cluster, endless)
        for action in decision.plan:
            name = cluster.jobs[action.key].name
            goes = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers}
            assert not any((name, node) in left for node in goes)
            left = {(who, node) for who, node in left if who != name}
            left |= {(name, action.before.workers[0][0])} if goes else set()
        cluster = cluster.after(decision, 31.0)


def _most(migration: str) -> int:
    rule = make_rule(RuleKind.MIGRATION, migration)
    return int(getattr(rule, "most", 0))


def _parameters(migration: str) -> set[str]:
    name = migration.partition(":")[0]
    found = next(info for info in rules_of(RuleKind.MIGRATION) if info.name == name)
    given_already = migration.partition(":")[2]
    return {parameter.name for parameter in found.parameters if f"{parameter.name}=" not in given_already}
