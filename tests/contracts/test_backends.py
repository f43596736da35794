"""The contract of `Backend`, which the round loop relies on. A new backend joins by one line in `every_backend`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SharedConfig, SimulationConfig
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.shared.backend import SharedBackend, shared_nodes
from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.control.backend import Backend
from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.model.cluster import MILLI
from sterna.model.job import JobSpec, ReplicaSpec
from sterna.model.plan import Decision, Outcome, Plan
from sterna.model.snapshot import NEVER, Jobs, Snapshot, compute_totals
from sterna.wiring import make_rules
from tests.builders import AJob, a_job
from tests.fakes.machine import FakeMachine, a_cluster, some_slices
from tests.simulation.kubernetes_runs import Cluster
from tests.simulation.runs import a_workload

COLUMNS = [name for name in vars(Jobs) if hasattr(getattr(Jobs, name), "__set_name__")]


def simulated() -> Backend:
    return SimulatedBackend(a_workload(_jobs()), simulated_nodes("3x4"))


def simulated_with_costs_and_faults() -> Backend:
    costs = Costs(restart_seconds=2, checkpoint_seconds=1, cross_node_penalty=0.1)
    faults = [Fault(0, 15, 20), Fault(1, 30, 10), Fault(2, 32, 10)]
    return SimulatedBackend(a_workload(_jobs()), simulated_nodes("3x4"), SimulationConfig(costs=costs, faults=faults))


def shared() -> Backend:
    """Jobs of one or two workers that share the cores of three nodes."""
    jobs = _jobs()
    count = np.arange(len(jobs))
    workload = SharedWorkload(
        tuple(job.name for job in jobs),
        np.array([job.submit for job in jobs]),
        np.array([job.remaining for job in jobs]),
        np.full(len(jobs), 4.0),
        1 + count % 2,
        np.zeros(len(jobs), dtype=np.int64),
    )
    return SharedBackend(
        workload, shared_nodes(3, 4.0), SharedConfig(costs=Costs(restart_seconds=2, checkpoint_seconds=1))
    )


_open_stores = ExitStack()


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    """Close databases after each test."""
    yield
    _open_stores.close()


def local() -> Backend:
    """The real backend on fake processes and a virtual clock."""
    folder = Path(_open_stores.enter_context(TemporaryDirectory()))
    rows = sorted(_jobs(), key=lambda job: (job.submit, job.name))
    machine = FakeMachine(folder, work={job.name: job.remaining for job in rows})
    run = a_cluster(folder, some_slices(4, 4, 4, devices=4), machine)
    _open_stores.callback(run.database.close)
    machine.arrivals = [(machine.now + job.submit, _spec(job)) for job in rows if job.submit]
    for job in rows:
        if not job.submit:
            run.cluster.create([_spec(job)])
    return run.backend


def _spec(job: AJob) -> JobSpec:
    worker = ReplicaSpec("worker", job.minimum, ("true",), devices=job.shape.devices)
    return JobSpec(job.name, "TrainingJob", (worker,), job.minimum, job.maximum, job.request, priority=job.priority)


def _jobs() -> list[AJob]:
    """Return elastic and rigid jobs, with whole devices and fractions, more than fit at once."""
    return [
        a_job(
            f"j{n:02d}",
            (1, 1 + n % 4),
            submit=float(3 * (n // 2)),
            remaining=20.0 + 7 * n,
            devices=(1, 1, 2, 0.5)[n % 4],
            priority=-(n % 5 // 4),
        )
        for n in range(20)
    ]


class KubernetesUntil:
    """The real operator backend on the in-memory API server; `wait` returns after an hour without events, because a
    cluster never knows that there will be no more."""

    def __init__(self, cluster: Cluster) -> None:
        self._kube, operator = cluster.kube, cluster.start()
        self._backend = operator.backend
        assert self._backend.prepare(10.0)
        self._backend.become_leader()

    def observe(self) -> Snapshot:
        return self._backend.observe()

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        return self._backend.apply(decision)

    def wait(self, until: float) -> bool:
        return self._backend.wait(min(until, self._kube.now + 3600.0))


def kubernetes() -> Backend:
    cluster = Cluster()
    for number in range(3):
        cluster.nodes.add(f"node-{number}", cpus=64, gpus=4)
    for job in _jobs():
        cluster.kube.call_in(job.submit, partial(_submit, cluster, job))
    return KubernetesUntil(cluster)


def _submit(cluster: Cluster, job: AJob) -> None:
    gpus = math.ceil(job.shape.devices / MILLI)
    cluster.submit(job.name, job.minimum, most=job.maximum, seconds=job.remaining, gpus=gpus)


@dataclass
class Maker:
    name: str
    make: Callable[[], Backend]
    is_simulated: bool = True
    """Jobs run from the moment their start is applied. Real processes first wait for their predecessors to exit."""
    has_end: bool = True
    """`wait` returns False once nothing can happen any more; a Kubernetes cluster cannot know that."""


every_backend = pytest.mark.parametrize(
    "maker",
    [
        Maker("simulated", simulated),
        Maker("simulated with costs and faults", simulated_with_costs_and_faults),
        Maker("shared", shared),
        Maker("local", local, is_simulated=False),
        Maker("kubernetes", kubernetes, is_simulated=False, has_end=False),
    ],
    ids=lambda maker: maker.name,
)
RULES = [
    ("elastic-fifo", "stay"),
    ("srjf", "spread"),
    ("elastic-tiresias", "pack"),
    ("dragon", "topology"),
    ("fifo", "none"),
]
some_rules = pytest.mark.parametrize(("policy", "placement"), RULES)


def decided_on(snapshot: Snapshot, policy: str = "elastic-fifo", placement: str = "stay") -> Decision:
    decision = decide(snapshot, make_rules(policy, placement))
    check(decision.plan, snapshot)
    return decision


@every_backend
@some_rules
def test_snapshots_are_consistent_at_every_instant(maker: Maker, policy: str, placement: str) -> None:
    """Rows are in order, assignments have the size of the column, totals equal recomputed ones."""
    if placement == "none" and maker.name != "simulated":
        pytest.skip("the placement none only counts devices, and these backends have nodes")
    backend = maker.make()
    rules = make_rules(policy, placement)
    now, total = -NEVER, None
    for _ in range(1000):
        snapshot = backend.observe()
        assert snapshot.now >= now
        now = snapshot.now
        _check_consistency(maker, snapshot, placement)
        if not (snapshot.nodes.is_open).all():
            total = None
        elif total is None:
            total = snapshot.units
        assert total in (None, snapshot.units)
        decision = decide(snapshot, rules)
        check(decision.plan, snapshot)
        assert set(backend.apply(decision)) <= {Outcome.APPLIED}
        if not backend.wait(decision.until) or not (maker.has_end or len(snapshot.jobs)):
            break
    assert len(backend.observe().jobs) == 0


def _check_consistency(maker: Maker, snapshot: Snapshot, placement: str) -> None:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    names = [jobs.name_of(row) for row in range(len(jobs))]
    assert sorted(zip(jobs.submit.tolist(), names, strict=True)) == list(zip(jobs.submit.tolist(), names, strict=True))
    assert len(set(jobs.key.tolist())) == len(jobs)
    assert [snapshot.assignment_of(row).size for row in range(len(jobs))] == jobs.workers.tolist()
    assert set(snapshot.assignments) <= set(jobs.key.tolist())
    running = jobs.workers > 0
    assert (jobs.workers[running] >= jobs.minimum[running]).all()
    assert (jobs.workers <= jobs.maximum).all()
    assert (jobs.first_start[running] <= (snapshot.now if maker.is_simulated else NEVER)).all()
    assert (jobs.waiting_since <= snapshot.now).all()
    assert (jobs.submit <= snapshot.now).all()
    assert not (jobs.remaining <= -1e-6).any()  # no number where the total is unknown
    assert (jobs.attained >= 0).all()
    assert nodes.free.min(initial=0) >= 0
    if placement == "none":
        return
    totals = compute_totals(jobs, nodes, snapshot.shapes)
    assert (snapshot.free_units, snapshot.held_units) == (totals.free_units, totals.held_units)
    assert snapshot.least_units == totals.least_units
    assert snapshot.max_workers >= totals.max_workers
    assert totals.is_rigid or not snapshot.is_rigid


@every_backend
def test_columns_are_read_only(maker: Maker) -> None:
    snapshot = maker.make().observe()
    for name in COLUMNS:
        values = getattr(snapshot.jobs, name)
        assert len(values) == len(snapshot.jobs)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    for values in (snapshot.nodes.free, snapshot.nodes.capacity, snapshot.nodes.is_open, snapshot.nodes.rack):
        with pytest.raises(ValueError, match="read-only"):
            values.flat[0] = 0
    with pytest.raises(TypeError):
        snapshot.assignments[0] = None  # type: ignore[index]


@every_backend
def test_observing_changes_nothing(maker: Maker) -> None:
    backend = maker.make()
    backend.apply(decided_on(backend.observe()))
    one, other = backend.observe(), backend.observe()
    for name in COLUMNS:
        assert np.array_equal(getattr(one.jobs, name), getattr(other.jobs, name), equal_nan=True)
    assert (one.now, one.free_units, dict(one.assignments)) == (other.now, other.free_units, dict(other.assignments))


@every_backend
def test_an_applied_plan_is_in_the_next_snapshot(maker: Maker) -> None:
    backend = maker.make()
    decision = decided_on(backend.observe())
    assert decision.plan.actions
    assert list(backend.apply(decision)) == [Outcome.APPLIED] * len(decision.plan)
    snapshot = backend.observe()
    assert {action.key: action.after for action in decision.plan} == dict(snapshot.assignments)
    assert snapshot.last_action == snapshot.now
    assert not decided_on(snapshot).plan.actions


@every_backend
def test_time_run_and_devices_used_are_up_to_date_while_a_job_runs(maker: Maker) -> None:
    backend = maker.make()
    backend.apply(decided_on(backend.observe(), "fifo"))
    end = backend.observe().now + 2
    while (snapshot := backend.observe()).now < end:
        assert backend.wait(end)
    runs = snapshot.jobs.workers > 0
    executed = snapshot.jobs.executed[runs]
    assert ((executed > 0) & (executed <= 2)).all()
    if maker.name != "kubernetes":  # whose pods take a while to start
        assert executed.tolist() == [2] * int(runs.sum())
    if "costs" in maker.name:  # whose jobs still restart, which is no attained service
        assert not snapshot.jobs.attained[runs].any()
        return
    assert snapshot.jobs.attained[runs] == pytest.approx(executed * snapshot.cost(snapshot.jobs.workers)[runs] / MILLI)


@every_backend
def test_applying_a_plan_twice_is_applying_it_once(maker: Maker) -> None:
    backend = maker.make()
    plan = decided_on(backend.observe()).plan
    backend.apply(Decision(plan))
    assignments, free = dict(backend.observe().assignments), backend.observe().free_units
    assert list(backend.apply(Decision(plan))) == [Outcome.STALE] * len(plan)
    assert (dict(backend.observe().assignments), backend.observe().free_units) == (assignments, free)


@every_backend
def test_a_plan_of_stale_actions_does_not_count_as_an_action(maker: Maker) -> None:
    """A rule that waits for a quiet period is not delayed by plans that changed nothing."""
    backend = maker.make()
    plan = decided_on(backend.observe()).plan
    backend.apply(Decision(plan))
    applied_at = backend.observe().now
    assert backend.wait(NEVER)
    backend.apply(Decision(Plan([action for action in plan if action.key in backend.observe().assignments])))
    assert backend.observe().last_action == applied_at
    backend.apply(Decision(Plan()))
    assert backend.observe().last_action == applied_at


@every_backend
def test_an_action_decided_before_the_cluster_changed_is_stale_or_applied_to_its_job(maker: Maker) -> None:
    """Rows shift as jobs end; an action names its job by its key, and never changes another one."""
    backend = maker.make()
    backend.apply(decided_on(backend.observe(), "fifo:preempt=false", "spread"))
    for _ in range(6):
        backend.wait(NEVER)
    late = Plan()
    for _ in range(40):
        late = decided_on(backend.observe(), "elastic-fifo", "spread").plan
        ended = len(backend.observe().jobs)
        if not backend.wait(NEVER):
            break
        if late.actions and len(backend.observe().jobs) < ended:
            break
        backend.apply(decided_on(backend.observe(), "fifo:preempt=false", "spread"))
    before = dict(backend.observe().assignments)
    outcomes = backend.apply(Decision(late))
    expected = before | {
        action.key: action.after for action, outcome in zip(late, outcomes, strict=True) if outcome is Outcome.APPLIED
    }
    snapshot = backend.observe()
    assert dict(snapshot.assignments) == {key: assignment for key, assignment in expected.items() if assignment.workers}
    _check_consistency(maker, snapshot, "spread")


@every_backend
def test_waiting_never_goes_back_in_time_nor_beyond_its_deadline(maker: Maker) -> None:
    backend = maker.make()
    now = backend.observe().now
    for step in (0.5, 0.0, -5.0, 1.0, 1e-9, NEVER):
        assert backend.wait(now + step)
        then = backend.observe().now
        assert now <= then <= max(now + step, now + 1e-5)
        now = then


@every_backend
def test_wait_returns_false_when_there_will_be_no_more_events(maker: Maker) -> None:
    if not maker.has_end:
        pytest.skip("a Kubernetes cluster may always have further events")
    backend = maker.make()
    while backend.wait(NEVER):
        backend.observe()
    now = backend.observe().now
    assert not backend.wait(NEVER)
    assert backend.observe().now == now
