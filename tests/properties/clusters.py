"""Small clusters for properties: a few nodes, a few jobs, some of which run already.

A cluster follows from a seed and two sizes, so a failure names what to build again, and smaller ones are tried first.
Values are drawn from short lists on purpose: ties, exact fits and jobs that almost fit are where rules go wrong.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from sterna.model.snapshot import NEVER, Snapshot
from tests.builders import AJob, ANode, ClusterSpec, a_job, a_node, a_snapshot, after, decided, spec_of

NOW = 10_000.0

CURVES = (None, (1, 1.9, 2.7, 3.4, 4.0), (1, 1.5, 1.75, 1.875), (1, 1), (1, 2, 3), (1, 1.8, 2.6, 3.2, 3.2))

PLAIN: tuple[dict[str, Any], ...] = ({}, {"devices": 2})
"""Requests of workers where only whole devices count."""

NEEDS: tuple[dict[str, Any], ...] = (
    *PLAIN,
    {"devices": 0.5},
    {"devices": 0.6},
    {"devices": 1, "is_shared": True},
    {"devices": 0.25, "cpus": 1},
    {"cpus": 2, "memory_bytes": 1},
    {"ps": 1, "ps_cpus": 1},
    {"ps": 2, "ps_cpus": 2, "cpus": 1},
    {"selector": {"zone": "a"}},
    {"tolerates": ("burst",)},
    {"devices": 0, "cpus": 1},
)


def a_cluster(seed: int, jobs: int, nodes: int, placement: str) -> ClusterSpec:
    """Make a cluster whose first few jobs run where some rule put them; one node if devices are only counted."""
    random = Random(seed)
    is_counted = placement == "none"
    variety = PLAIN if is_counted or random.random() < 0.3 else NEEDS
    needs = random.sample(variety, min(len(variety), random.choice((1, 2, 5))))
    cluster = [_some_node(random, f"n{number}") for number in range(nodes)]
    if is_counted:
        cluster = [a_node("n0", sum(node.devices for node in cluster))]
    specs = [_some_job(random, f"j{number}", random.choice(needs)) for number in range(jobs)]
    running = random.randint(0, jobs)
    placed = a_snapshot(specs[:running], cluster, now=NOW)
    if running:
        past = random.choice(("fifo", "elastic-fifo", "elastic-srjf"))
        where = "none" if is_counted else random.choice(("spread", "pack"))
        placed = after(placed, decided(placed, past, where).decision)
    if len(cluster) > 1 and random.random() < 0.2:
        cluster[0] = replace(cluster[0], is_open=False)
    last_action = random.choice((-NEVER, NOW - 61, NOW - 59))
    finished = tuple(float(random.randint(1, 5000)) for _ in range(random.randint(0, 4)))
    return ClusterSpec((*spec_of(placed).jobs, *specs[running:]), tuple(cluster), NOW, last_action, finished)


def a_wide_cluster(seed: int, jobs: int, nodes: int) -> ClusterSpec:
    """Make a cluster without running jobs, where a few jobs whose workers do not divide the nodes evenly may grow
    far."""
    random = Random(seed)
    cluster = [
        a_node(f"n{number}", random.choice((2, 8, 8, 16)), cpus=random.choice((4, 16, 32))) for number in range(nodes)
    ]
    specs = []
    for number in range(jobs):
        minimum = random.choice((1, 1, 2))
        specs.append(
            a_job(
                f"j{number}",
                (minimum, minimum + random.choice((3, 11, 40, 1000))),
                submit=float(random.randint(0, 2)),
                remaining=float(random.choice((50, 100, 700))),
                devices=random.choice((1, 2, 3, 4, 5)),
                cpus=random.choice((0, 0, 1, 2)),
                speedup=random.choice((None, None, *CURVES)),
            )
        )
    return ClusterSpec(tuple(specs), tuple(cluster), NOW, -NEVER, ())


def snapshot_of(cluster: ClusterSpec) -> Snapshot:
    return a_snapshot(
        cluster.jobs,
        cluster.nodes,
        now=cluster.now,
        last_action=cluster.last_action,
        finished=cluster.finished,
        restart_seconds=cluster.restart_seconds,
    )


def _some_job(random: Random, name: str, needs: dict[str, Any]) -> AJob:
    minimum = random.choice((1, 1, 2, 3))
    maximum = minimum + random.choice((0, 0, 1, 2, 4))
    submit = float(random.randint(0, 3))
    executed = float(random.choice((0, 10, 1000)))
    return a_job(
        name,
        (minimum, maximum),
        workers=random.randint(minimum, maximum),
        submit=submit,
        remaining=float(random.choice((50, 100, 100, 700))),
        priority=random.choice((0, 0, 0, 0, 0, -1, -2)),
        speedup=random.choice(CURVES),
        waiting_since=random.choice((submit, NOW - 31, NOW - 29, NOW)),
        attained=executed * random.choice((1, 4)),
        executed=executed,
        first_start=random.choice((submit, 4.0, 5.0)) if executed else NEVER,
        **needs,
    )


def _some_node(random: Random, name: str) -> ANode:
    return a_node(
        name,
        random.choice((1, 2, 3, 4, 4)),
        cpus=random.choice((2, 4, 8)),
        memory_bytes=random.choice((0, 2, 8)),
        labels={"zone": random.choice("ab")},
        taints=random.choice(((), (), (), ("burst",))),
        rack=random.randint(0, 1),
    )
