"""One contract for every backend: what the controller relies on, whatever the world. A new one joins by one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
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
from tests.simulation.runs import a_workload

COLUMNS = [name for name in vars(Jobs) if hasattr(getattr(Jobs, name), "__set_name__")]


def simulated() -> Backend:
    return SimulatedBackend(a_workload(_jobs()), simulated_nodes("3x4"))


def simulated_with_costs_and_faults() -> Backend:
    costs = Costs(restart_seconds=2, lost_work_seconds=1, cross_node_penalty=0.1)
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
        workload, shared_nodes(3, 4.0), SharedConfig(costs=Costs(restart_seconds=2, lost_work_seconds=1))
    )


_open_stores = ExitStack()


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    """Worlds that keep something on disk are closed when their test is over."""
    yield
    _open_stores.close()


def local() -> Backend:
    """The real one above processes that are not there, on a virtual clock."""
    folder = Path(_open_stores.enter_context(TemporaryDirectory()))
    rows = sorted(_jobs(), key=lambda job: (job.submit, job.name))
    machine = FakeMachine(folder, work={job.name: job.remaining for job in rows})
    world = a_cluster(folder, some_slices(4, 4, 4, devices=4), machine)
    _open_stores.callback(world.store.close)
    machine.arrivals = [(machine.now + job.submit, _spec(job)) for job in rows if job.submit]
    for job in rows:
        if not job.submit:
            world.cluster.create([_spec(job)])
    return world.backend


def _spec(job: AJob) -> JobSpec:
    worker = ReplicaSpec("worker", job.minimum, ("true",), devices=job.shape.devices)
    return JobSpec(job.name, "TrainingJob", (worker,), job.minimum, job.maximum, job.request, priority=job.priority)


def _jobs() -> list[AJob]:
    """Elastic and rigid ones, whole devices and parts, more than fit at once."""
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


@dataclass
class Maker:
    name: str
    make: Callable[[], Backend]


every_backend = pytest.mark.parametrize(
    "maker",
    [
        Maker("simulated", simulated),
        Maker("simulated with costs and faults", simulated_with_costs_and_faults),
        Maker("shared", shared),
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
def test_what_is_observed_is_consistent_at_every_instant(maker: Maker, policy: str, placement: str) -> None:
    """Rows in order, homes of as many workers as the column says, sums as taking stock anew gives them."""
    if placement == "none" and maker.name != "simulated":
        pytest.skip("where nodes are real, or are lost, devices are not only counted")
    backend = maker.make()
    rules = make_rules(policy, placement)
    now, total = -NEVER, None
    for _ in range(300):
        snapshot = backend.observe()
        assert snapshot.now >= now
        now = snapshot.now
        _is_consistent(snapshot, placement)
        if not (snapshot.nodes.is_open).all():
            total = None
        elif total is None:
            total = snapshot.units
        assert total in (None, snapshot.units)
        decision = decide(snapshot, rules)
        check(decision.plan, snapshot)
        assert set(backend.apply(decision)) <= {Outcome.APPLIED}
        if not backend.wait(decision.until):
            break
    assert len(backend.observe().jobs) == 0


def _is_consistent(snapshot: Snapshot, placement: str) -> None:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    names = [jobs.name_of(row) for row in range(len(jobs))]
    assert sorted(zip(jobs.submit.tolist(), names, strict=True)) == list(zip(jobs.submit.tolist(), names, strict=True))
    assert len(set(jobs.key.tolist())) == len(jobs)
    assert [snapshot.assignment_of(row).size for row in range(len(jobs))] == jobs.workers.tolist()
    assert set(snapshot.assignments) <= set(jobs.key.tolist())
    running = jobs.workers > 0
    assert (jobs.workers[running] >= jobs.minimum[running]).all()
    assert (jobs.workers <= jobs.maximum).all()
    assert (jobs.first_start[running] <= snapshot.now).all()
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
def test_looking_changes_nothing(maker: Maker) -> None:
    backend = maker.make()
    backend.apply(decided_on(backend.observe()))
    one, other = backend.observe(), backend.observe()
    for name in COLUMNS:
        assert np.array_equal(getattr(one.jobs, name), getattr(other.jobs, name), equal_nan=True)
    assert (one.now, one.free_units, dict(one.assignments)) == (other.now, other.free_units, dict(other.assignments))


@every_backend
def test_a_plan_applied_is_seen(maker: Maker) -> None:
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
    assert backend.wait(backend.observe().now + 2)
    snapshot = backend.observe()
    runs = snapshot.jobs.workers > 0
    assert snapshot.jobs.executed[runs].tolist() == [2] * int(runs.sum())
    assert (snapshot.jobs.attained[runs] == 2 * snapshot.cost(snapshot.jobs.workers)[runs] / MILLI).all()


@every_backend
def test_applying_a_plan_twice_is_applying_it_once(maker: Maker) -> None:
    backend = maker.make()
    plan = decided_on(backend.observe()).plan
    backend.apply(Decision(plan))
    assignments, free = dict(backend.observe().assignments), backend.observe().free_units
    assert list(backend.apply(Decision(plan))) == [Outcome.STALE] * len(plan)
    assert (dict(backend.observe().assignments), backend.observe().free_units) == (assignments, free)


@every_backend
def test_what_was_all_stale_was_no_action(maker: Maker) -> None:
    """A rule that waits for quiet must not be kept waiting by plans that changed nothing."""
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
def test_an_action_decided_before_the_world_moved_is_refused_or_done_right(maker: Maker) -> None:
    """Rows shift as jobs end; an action names its job by its key, and must never strike another."""
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
    _is_consistent(snapshot, "spread")


@every_backend
def test_waiting_never_goes_back_in_time_nor_beyond_what_was_asked(maker: Maker) -> None:
    backend = maker.make()
    now = backend.observe().now
    for step in (0.5, 0.0, -5.0, 1.0, 1e-9, NEVER):
        assert backend.wait(now + step)
        then = backend.observe().now
        assert now <= then <= max(now + step, now + 1e-5)
        now = then


@every_backend
def test_when_nothing_will_ever_happen_waiting_says_so(maker: Maker) -> None:
    backend = maker.make()
    while backend.wait(NEVER):
        pass
    now = backend.observe().now
    assert not backend.wait(NEVER)
    assert backend.observe().now == now
