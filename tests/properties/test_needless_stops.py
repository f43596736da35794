"""No capacity idles that a job could use, and no job is stopped needlessly: for every rule that promises it.

Not for strict FIFO, which lets room idle rather than pass a job, not for `easy` and `conservative`, which reserve it,
and not for `dragon` while a job starves or before all has been quiet. Whether a job could use what is left is worked
out here, node by node, without the code that places.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sterna.engine.check import check
from sterna.engine.registry import RuleKind
from sterna.errors import Bug
from sterna.model.cluster import MILLI, Shape
from sterna.model.plan import ActionKind, Plan
from sterna.model.snapshot import Snapshot
from sterna.wiring import rules_of
from tests.builders import AJob, after, decided, spec_of
from tests.properties.clusters import a_cluster, snapshot_of

POLICIES = [info.name for info in rules_of(RuleKind.POLICY)]
PLACEMENTS = [info.name for info in rules_of(RuleKind.PLACEMENT)]

ASKS_FOR_ITS_REQUEST = {"tiresias"}
LETS_ROOM_IDLE = {"dragon"}
"""While a job starves; see below."""
RESERVES_ROOM = {"easy", "conservative"}
GROWS_ALWAYS = {"elastic-fifo", "elastic-srjf"}
GROWS_WHILE_IT_GAINS = {"ffdl", "afs-l", "elastic-tiresias", "least-delay"}

PLENTY = 1 << 20
"""Workers that need nothing of a node, as many as there may be."""

small_worlds = given(seed=st.integers(0, 1_000_000), jobs=st.integers(1, 8), nodes=st.integers(1, 4))


@pytest.mark.parametrize(("policy", "placement"), list(product(sorted(set(POLICIES) - RESERVES_ROOM), PLACEMENTS)))
@settings(max_examples=25)
@small_worlds
def test_waiting_job_could_not_be_placed(policy: str, placement: str, seed: int, jobs: int, nodes: int) -> None:
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    then = after(before, decided(before, policy, placement).decision)
    waiting = [job for job in spec_of(then).jobs if not job.workers]
    if policy in LETS_ROOM_IDLE and any(then.now - job.waiting_since >= 30 for job in waiting):
        return
    for job in waiting:
        size = job.request if policy in ASKS_FOR_ITS_REQUEST else job.minimum
        assert job.shape.ps or more_workers(then, job.shape, placement) < size, job.name


@pytest.mark.parametrize(
    ("policy", "placement"), list(product(sorted(GROWS_ALWAYS | GROWS_WHILE_IT_GAINS), PLACEMENTS))
)
@settings(max_examples=25)
@small_worlds
@example(seed=1018, jobs=3, nodes=1)  # a job without devices while all devices are in use
def test_job_below_its_maximum_has_no_room_to_grow(
    policy: str, placement: str, seed: int, jobs: int, nodes: int
) -> None:
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    then = after(before, decided(before, policy, placement).decision)
    for job in spec_of(then).jobs:
        if 0 < job.workers < job.maximum and (policy in GROWS_ALWAYS or gains_more(job)):
            assert more_workers(then, job.shape, placement) == 0, job.name


@pytest.mark.parametrize(("policy", "placement"), list(product(("fifo", "srjf", "dragon"), PLACEMENTS)))
@settings(max_examples=40)
@small_worlds
def test_no_job_is_stopped_that_could_have_stayed(
    policy: str, placement: str, seed: int, jobs: int, nodes: int
) -> None:
    """Take any one stop out of the plan, and the rest no longer holds."""
    before = snapshot_of(a_cluster(seed, jobs, nodes, placement))
    actions = list(decided(before, policy, placement).decision.plan.actions)
    for at, action in enumerate(actions):
        if action.kind is ActionKind.STOP and int(before.jobs.minimum[action.row]) == action.before.size:
            with pytest.raises(Bug):
                check(Plan(actions[:at] + actions[at + 1 :] or [action, action]), before)


def gains_more(job: AJob) -> bool:
    if job.speedup is None:
        return True
    return job.workers < len(job.speedup) and job.speedup[job.workers] > job.speedup[job.workers - 1]


def more_workers(snapshot: Snapshot, shape: Shape, placement: str) -> int:
    """Return how many workers of this shape still fit on the nodes that accept them."""
    if placement == "none":
        return snapshot.free_units // shape.devices
    return sum(here(snapshot, shape, node) for node in range(len(snapshot.nodes)))


def here(snapshot: Snapshot, shape: Shape, node: int) -> int:
    nodes = snapshot.nodes
    if not nodes.is_open[node] or not shape.accepts(nodes.labels[node], nodes.taints[node]):
        return 0
    devices, cpus, memory = nodes.free[:, node].tolist()
    bounds = []
    if shape.devices >= MILLI:
        bounds.append(devices // shape.devices)
    elif shape.devices:
        shared = sum(part // shape.devices for part in nodes.shared.get(node, {}).values())
        bounds.append(devices // MILLI * (MILLI // shape.devices) + shared)
    if shape.cpus:
        bounds.append(cpus // shape.cpus)
    if shape.memory_bytes:
        bounds.append(memory // shape.memory_bytes)
    return int(min(bounds, default=PLENTY))
