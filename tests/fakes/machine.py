"""Fake machine with processes on a virtual clock, for tests of the local backend.

`FakeMachine` implements the launcher and the wake-ups of a local backend, `FakeControl` its control groups; they share
one state. Each running worker of a job does one second of its work per second. A process that is asked to stop saves
and exits at once, unless a test sets `saves` or `is_stubborn`. No test sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.cluster import LocalCluster
from sterna.backends.local.jobs.environment import EnvironmentConfig
from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.backends.local.jobs.launching import LocalDeps
from sterna.backends.local.store.database import Database
from sterna.backends.local.store.job_store import JobStore
from sterna.backends.local.store.node_slices import LocalNode, Slices
from sterna.backends.local.store.records import StatePaths
from sterna.backends.local.supervisor.launch_spec import LaunchSpec
from sterna.backends.local.supervisor.launcher import ExitRecord, ReplicaPhase, ReplicaState
from sterna.errors import Retry
from sterna.model.job import JobSpec
from sterna.service.views import Explanation, PolicyView
from sterna.wiring import make_rules

_DUST = 1e-9


@dataclass
class FakeProcess:
    """One replica."""

    job: str
    launch_spec: LaunchSpec
    exit: ExitRecord | None = None
    is_lost: bool = False
    is_void: bool = False

    @property
    def is_running(self) -> bool:
        return self.exit is None and not self.is_lost and not self.is_void


@dataclass
class FakeMachine:
    """State of the fake: processes, control groups, clock."""

    state: Path
    now: float = 1000.0
    work: dict[str, float] = field(default_factory=dict)
    """Remaining worker seconds of each job; a job that is not listed never completes."""
    saves: bool = True
    """True: a process that is asked to stop reports that it saved."""
    is_stubborn: bool = False
    """True: processes ignore stop requests."""
    is_slow: bool = False
    """True: new processes stay in phase ASKED."""
    refuses: str = ""
    """Error of every start; empty if starts succeed."""
    arrivals: list[tuple[float, JobSpec]] = field(default_factory=list)
    cluster: LocalCluster | None = None
    processes: dict[str, FakeProcess] = field(default_factory=dict)
    cpu_shares: dict[str, float] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    """Node of each group."""
    asked: list[str] = field(default_factory=list)
    most_at_once: dict[str, int] = field(default_factory=dict)
    """Maximum number of attempts of each job that ran concurrently."""
    _ended: set[str] = field(default_factory=set)
    _is_woken: bool = False
    _seen: set[str] = field(default_factory=set)

    # The clock and the wake-ups.

    def clock(self) -> float:
        return self.now

    def follow(self, name: str, descriptor: int) -> None:
        return None

    def drop(self, name: str) -> None:
        self._ended.discard(name)

    def wake(self) -> None:
        self._is_woken = True

    def close(self) -> None:
        return None

    def wait(self, seconds: float | None) -> Collection[str] | None:
        if self._is_woken or self._ended:
            self._is_woken = False
            return self._take_ended()
        then = self.now + (math.inf if seconds is None else seconds)
        then = min([then, self._next_end(), *(at for at, _ in self.arrivals[:1])])
        if then == math.inf:
            return None
        self._pass(max(then, self.now))
        return self._take_ended()

    def _take_ended(self) -> Collection[str]:
        ended, self._ended = self._ended, set()
        return ended

    def _workers(self, job: str) -> int:
        return sum(each.is_running for each in self.processes.values() if each.job == job)

    def _next_end(self) -> float:
        ends = [self.now + left / self._workers(job) for job, left in self.work.items() if self._workers(job)]
        return min(ends, default=math.inf)

    def _pass(self, then: float) -> None:
        span, self.now = then - self.now, then
        for job, left in list(self.work.items()):
            self.work[job] = left - span * self._workers(job)
            if self.work[job] <= _DUST * max(1.0, left) and self._workers(job):
                del self.work[job]
                for name in [name for name, each in self.processes.items() if each.job == job and each.is_running]:
                    self.end(name, 0)
        while self.arrivals and self.arrivals[0][0] <= self.now:
            _, spec = self.arrivals.pop(0)
            assert self.cluster is not None
            self.cluster.create([spec])

    def end(self, name: str, code: int, was_asked: bool = False, has_saved: bool = False) -> None:
        """End a process with an exit record."""
        self.processes[name].exit = ExitRecord(code, None, self.now, was_asked, has_saved, cpu_seconds=1.0)
        self._ended.add(name)

    def lose(self, name: str) -> None:
        """End a process and its shim without an exit record."""
        self.processes[name].is_lost = True
        self._ended.add(name)

    # The launcher.

    def _name(self, folder: Path) -> str:
        return str(folder.relative_to(self.state / "jobs"))

    def start(self, folder: Path, launch_spec: LaunchSpec) -> None:
        if self.refuses:
            raise Retry(self.refuses)
        name = self._name(folder)
        job, attempt, _ = name.split("/")
        self.processes[name] = FakeProcess(job, launch_spec)
        running = {other.split("/")[1] for other, each in self.processes.items() if each.job == job and each.is_running}
        self.most_at_once[job] = max(self.most_at_once.get(job, 0), len(running | {attempt}))

    def stop(self, folder: Path, grace_seconds: float, why: str) -> None:
        name = self._name(folder)
        self.asked.append(name)
        if self.processes[name].is_running and not self.is_stubborn:
            self.end(name, 143, was_asked=True, has_saved=self.saves)

    def inspect(self, folder: Path) -> ReplicaState:
        process = self.processes.get(self._name(folder))
        if process is None:
            return ReplicaState(ReplicaPhase.ABSENT)
        if self.is_slow and self._name(folder) not in self._seen:
            return ReplicaState(ReplicaPhase.ASKED)
        self._seen.add(self._name(folder))
        if process.exit is not None:
            return ReplicaState(ReplicaPhase.ENDED, exit=process.exit)
        if process.is_void:
            return ReplicaState(ReplicaPhase.VOID)
        return ReplicaState(ReplicaPhase.LOST if process.is_lost else ReplicaPhase.RUNNING, pid=1)

    def void(self, folder: Path) -> bool:
        name = self._name(folder)
        if name not in self.processes:
            nothing = LaunchSpec(token="", command=["true"], env={}, cwd="/")
            self.processes[name] = FakeProcess(name.split("/")[0], nothing, is_void=True)
        return self.processes[name].is_void

    def kill(self, folder: Path) -> bool:
        process = self.processes[self._name(folder)]
        if process.is_running:
            self.end(self._name(folder), 137, was_asked=True)
        return True

    def cpu_seconds(self, folder: Path | str) -> float:
        return 0.0

    def watch(self, folder: Path) -> int | None:
        return 0

    def running(self, job: str) -> list[str]:
        return sorted(name for name, each in self.processes.items() if each.job == job and each.is_running)


class FakeControl:
    """Control groups that record the node and the CPU share of each job."""

    words = "a fake"

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None:
        return None

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        self._machine.groups[job] = node
        return (f"{node}/{job}",)

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        assert self._machine.groups[job] == node
        self._machine.cpu_shares[job] = weight

    def move(self, job: str, source: str, target: str) -> None:
        assert self._machine.groups[job] == source
        self._machine.groups[job] = target

    def remove(self, node: str, job: str) -> None:
        self._machine.groups.pop(job, None)

    def remove_node(self, name: str) -> None:
        return None

    def cpu_seconds(self, job: str) -> float | None:
        return None

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        return None

    def close(self) -> None:
        return None


def some_slices(*sizes: int, devices: int = 0, is_shared: bool = False) -> Slices:
    """Return nodes node0, node1, .. with `sizes` cores and `devices` devices each."""
    nodes = []
    for number, cores in enumerate(sizes):
        numbers = tuple(range(number * devices, (number + 1) * devices))
        nodes.append(LocalNode(f"node{number}", tuple(range(cores)), numbers, 1 << 30))
    return Slices(tuple(nodes), is_shared)


@dataclass
class FakeLocalCluster:
    """A local backend and its `LocalCluster` on a fake machine."""

    machine: FakeMachine
    database: Database
    backend: LocalBackend
    cluster: LocalCluster


def a_cluster(
    state: Path,
    slices: Slices,
    machine: FakeMachine | None = None,
    *,
    policy: str = "elastic-fifo",
    backoff: RestartBackoff | None = None,
) -> FakeLocalCluster:
    machine = machine or FakeMachine(state)
    database = Database(state / "sterna.db")
    store = JobStore(database, slices, machine.clock)
    deps = LocalDeps(machine, FakeControl(machine), EnvironmentConfig(StatePaths(state)))
    backend = LocalBackend(store, deps, machine, backoff=backoff)
    view = PolicyView(policy, "stay", "none", "equal", "serving", 0.0)
    cluster = LocalCluster(
        backend,
        view,
        lambda rules: make_rules(rules.policy, rules.placement),
        lambda path, job, events, now: Explanation(job.name, policy, "stay", 0, 0.0, "waits", [], []),
    )
    machine.cluster = cluster
    return FakeLocalCluster(machine, database, backend, cluster)
