"""Reconcile attempts with desired assignments, one replica at a time, never two attempts of a job at once.

Level-triggered: each pass compares the desired assignment with what runs and takes the next step: start, add or remove
a worker, move in place, or request a stop. A replica that was asked to stop keeps its capacity until it has exited.
Every start is in the database before it happens.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress

from sterna.backends.local.jobs.checkpoints import LEAST_LOSS_SECONDS, unsaved_seconds
from sterna.backends.local.jobs.launching import AttemptLauncher, LocalDeps
from sterna.backends.local.jobs.layout import count_by_node, expand_nodes, is_host, plan_layout_change, size_of
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import ENDED, RUNNING, AttemptRecord, ReplicaRecord
from sterna.errors import Retry, UserError
from sterna.model.cluster import MILLI, ResourceKind
from sterna.model.job import JobSpec
from sterna.model.reason import Code, Reason

_SERVERS = frozenset({"ps", "evaluator"})
"""Types that are asked to stop only after the replicas that they serve have exited."""
_TELLING = 0.1
"""Relative change of a CPU share that is worth an event."""


class AttemptReconciler:
    """Reconciles all attempts of a cluster."""

    def __init__(self, store: JobStore, deps: LocalDeps) -> None:
        self._store, self._deps = store, deps
        self._launcher = AttemptLauncher(store, deps)

    # One pass.

    def reconcile(self) -> None:
        """Take the next step for every job that differs from its desired state."""
        with self._store.lock:
            live = list(self._store.live.values())
            seated = [job for job in self._store.open.values() if job.assignment.workers and not job.record.is_live]
        for job in live:
            if job.record.is_live:
                self._adapt(job)
        now = self._store.clock()
        starting = [job for job in seated if job.wants_to_run and job.record.not_before <= now]
        if starting:
            self._start(sorted(starting, key=lambda job: (job.record.submitted_at, job.name)))

    def _adapt(self, job: LocalJob) -> None:
        """Bring a running attempt closer to its desired layout."""
        record, attempt = job.record, job.record.attempt
        assert attempt is not None
        self._repeat_stop_requests(job, attempt)
        if attempt.stopping:
            return
        if not job.wants_to_run:
            self.stop(job, "it is deleted" if record.deleting else record.doomed or "it is over")
        elif not job.assignment.workers:
            said = job.reason.sentence.removesuffix(".") if job.reason is not None else ""
            self._preempt(job, said if said.startswith("stopped") else "it has to wait")
        elif (attempt.workers, attempt.servers) != (record.workers, record.servers):
            self._rearrange(job, attempt)
        self._share(job, attempt)

    def _rearrange(self, job: LocalJob, attempt: AttemptRecord) -> None:
        record = job.record
        is_resize = size_of(attempt.workers) != size_of(record.workers)
        is_led = not record.spec.worker.command  # the processes that a launcher has started cannot be resized
        can_move = not job.shape.devices and not record.by_checkpoint
        if is_resize and (is_led or record.spec.resizing.is_by_restart):
            why = f"it goes on with {size_of(record.workers)} instead of {size_of(attempt.workers)} workers"
            self._preempt(job, why)
            return
        change = plan_layout_change(record, attempt)
        self._book_time(job)
        if is_led or not (can_move or not change.moved) or not self._move_in_place(job, change.moved):
            self._preempt(job, f"it moves to {', '.join(dict.fromkeys(name for name, _ in record.workers))}")
            return
        if change.leaving or change.arriving:
            self._resize(job, attempt, change.leaving, change.arriving)
        else:
            with self._store.lock:
                attempt.workers, attempt.servers = list(record.workers), list(record.servers)
                self._store.save_later(job)

    # Starting.

    def _start(self, jobs: Iterable[LocalJob]) -> None:
        begun: list[tuple[LocalJob, AttemptRecord | None]] = []
        statements = []
        with self._store.lock:
            for job in jobs:
                before = job.record.attempt
                if job.wants_to_run and job.assignment.workers and self._launcher.arrange(job):
                    self._store.index(job)
                    begun.append((job, before))
                    statements.append(self._store.statement(job))
        if not begun:
            return
        try:
            self._store.database.write(statements)
        except UserError as error:
            with self._store.lock:
                for job, before in begun:
                    job.record.attempt = before
                    job.record.attempts -= 1
                    self._store.index(job)
            raise Retry(str(error)) from None
        crash_point("daemon.intended")
        for job, _ in begun:
            attempt = job.record.attempt
            assert attempt is not None
            self._launcher.prepare(job, attempt)
            for replica in attempt.replicas:
                self._launcher.launch(job, attempt, replica)
            self._note_start(job, attempt)

    def _note_start(self, job: LocalJob, attempt: AttemptRecord) -> None:
        record, now = job.record, self._store.clock()
        with self._store.lock:
            record.waited_seconds += max(0.0, now - record.queued_since)
            if record.first_started_at is None:
                record.first_started_at = now
            self._store.save_later(job)
        workers = size_of(attempt.workers)
        again = f", attempt {attempt.number}" if attempt.number > 1 else ""
        where = ", ".join(dict.fromkeys(expand_nodes(attempt.workers)))
        self._store.note(job.name, "started", f"started with {_format_workers(workers)} on {where}{again}.")
        self._share(job, attempt)

    # Changes in place.

    def _move_in_place(self, job: LocalJob, moves: Sequence[tuple[ReplicaRecord, str]]) -> bool:
        """Move replicas in place; return False if the machine refuses, so that the job moves by checkpoint."""
        try:
            for replica, target in moves:
                self._move(job, replica, target)
        except OSError as error:
            self._store.note(job.name, "error", f"it cannot be moved in place: {error}.")
            return False
        return True

    def _move(self, job: LocalJob, replica: ReplicaRecord, target: str) -> None:
        source = replica.node
        if replica.group:
            self._deps.groups.move(replica.group, source, target)
        with self._store.lock:
            replica.node = target
            replica.cores = self._launcher.cores(job, replica)
            job.weights.pop(replica.group, None)
        self._store.note(job.name, "moved", f"{replica.name} moved from {source} to {target} in place, without a stop.")

    def _resize(
        self,
        job: LocalJob,
        attempt: AttemptRecord,
        leaving: Sequence[ReplicaRecord],
        arriving: Sequence[tuple[str, int]],
    ) -> None:
        """Add and remove workers while the others train on. Leaving workers are removed from the membership first."""
        record, before, now = job.record, size_of(attempt.workers), self._store.clock()
        with self._store.lock:
            used = {each.index for each in attempt.replicas if each.type == record.spec.worker.type}
            new = [
                ReplicaRecord(record.spec.worker.type, index, 0, node, secrets.token_hex(8), slot=slot, intended_at=now)
                for index, (node, slot) in zip(_unused_indices(used, len(arriving)), arriving, strict=True)
            ]
            if not self._launcher.equip(job, new, attempt.number):
                return
            for replica in leaving:
                replica.leaving = True
            attempt.replicas = [*attempt.replicas, *new]
            attempt.generation += 1
            for rank, member in enumerate(attempt.members):
                member.rank = rank
            attempt.workers, attempt.servers = list(record.workers), list(record.servers)
            statement = self._store.statement(job)
        self._store.database.write([statement])
        crash_point("daemon.resizing")
        self._launcher.write_world(job, attempt)
        for replica in new:
            self._launcher.launch(job, attempt, replica)
        self._repeat_stop_requests(job, attempt)
        sentence = f"from {before} to {_format_workers(size_of(attempt.workers))} while it runs"
        self._store.note(job.name, "resized", f"{'grew' if arriving else 'shrank'} {sentence}.")

    def adopt_replica(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Publish the membership again: the predecessor may have died before it did."""
        self._launcher.write_world(job, attempt)

    def drop(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord) -> bool:
        """Go on without a worker that died, if the job can; its node stays unused until a round fills it."""
        record = job.record
        workers = [each for each in attempt.members if each.type == record.spec.worker.type]
        is_elastic = not record.spec.resizing.is_by_restart and replica.type == record.spec.worker.type
        is_missed = len(workers) < max(record.minimum, 1) or is_host(record, attempt, replica)
        if not is_elastic or is_missed or attempt.stopping:
            return False
        self._book_time(job)
        with self._store.lock:
            replica.leaving = True
            attempt.workers = count_by_node([each.node for each in workers])
            attempt.generation += 1
            for rank, member in enumerate(attempt.members):
                member.rank = rank
            rows = self._store.slices.row_of
            seats = tuple((rows[name], count) for name, count in attempt.workers)
            slots = tuple(each.slot for each in workers) if job.assignment.slots else ()
            self._store.assign(job, job.assignment._replace(workers=seats, slots=slots))
            self._store.save_later(job)
        self._launcher.write_world(job, attempt)
        return True

    def _share(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Set the CPU share of the job's control groups where it differs."""
        cpu_share = job.record.cpu_share
        for replica in attempt.members:
            if replica.group and job.weights.get(replica.group, 1.0) != cpu_share:
                try:
                    self._deps.groups.set_cpu_share(replica.node, replica.group, cpu_share)
                except OSError:
                    continue  # it is exiting or starting: the next pass retries
                job.weights[replica.group] = cpu_share
                self._note_cpu_share(job, cpu_share)

    def _note_cpu_share(self, job: LocalJob, cpu_share: float) -> None:
        """Note a changed CPU share, once for all replicas and not for small changes."""
        if abs(cpu_share - job.noted_cpu_share) >= _TELLING * job.noted_cpu_share:
            job.noted_cpu_share = cpu_share
            self._store.note(job.name, "shared", Reason(0, job.name, Code.SHARED, round(cpu_share, 2)).sentence)

    # Stopping.

    def _preempt(self, job: LocalJob, why: str) -> None:
        """Stop a job that could run on, after an event about the work that it loses."""
        if (lost := unsaved_seconds(job.record, self._store.clock())) >= LEAST_LOSS_SECONDS:
            sentence = f"is asked to stop and loses {lost:.0f} s of work that it has not saved: {why}."
            self._store.note(job.name, "stopping", sentence)
        self.stop(job, why)

    def stop(self, job: LocalJob, why: str) -> None:
        """Ask all replicas to save and exit; those that serve others last."""
        attempt = job.record.attempt
        assert attempt is not None
        with self._store.lock:
            attempt.stopping = why
            self._store.save_later(job)
        crash_point("daemon.stopping")
        self._repeat_stop_requests(job, attempt)

    def _repeat_stop_requests(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Repeat stop requests that a crash or a full disk prevented."""
        live = attempt.live
        ending = _next_to_end(job.record.spec, live) if attempt.stopping else []
        for replica in live:
            if not replica.asked_at and (replica.leaving or replica in ending):
                self._ask(job, attempt, replica, attempt.stopping or "it has one worker less")

    def handle_member_exit(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Continue after an exit: replicas that served it may stop, and elastic ones get the new membership."""
        if attempt.live:
            self._repeat_stop_requests(job, attempt)

    def _ask(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord, why: str) -> None:
        asked_at = self._store.clock()
        folder = self._deps.environment.paths.replica(job.name, attempt.number, replica.name)
        if replica.state != RUNNING and self._deps.processes.void(folder):
            with self._store.lock:
                replica.state = ENDED  # it never started
            if replica.group:
                with suppress(OSError):
                    self._deps.groups.remove(replica.node, replica.group)
            return
        self._deps.processes.stop(folder, job.record.spec.grace_seconds, why)
        with self._store.lock:
            replica.asked_at = asked_at
            self._store.save_later(job)

    # Run time.

    def _book_time(self, job: LocalJob) -> None:
        count_run_time(self._store, job)


def count_run_time(store: JobStore, job: LocalJob, until: float | None = None) -> None:
    """Add the run time and service of an attempt at its current size to its job."""
    attempt, record = job.record.attempt, job.record
    if attempt is None or not attempt.counted_from:
        return
    now = store.clock() if until is None else until
    span = max(0.0, now - attempt.counted_from)
    with store.lock:
        used = span * units(store, job, attempt) / MILLI
        record.executed += span
        record.attained += used
        record.service += used
        attempt.counted_from = now


def units(store: JobStore, job: LocalJob, attempt: AttemptRecord) -> int:
    """Return what an attempt holds, in thousandths of the units that policies count."""
    has_devices = any(node.devices for node in store.slices.nodes)
    resource = ResourceKind.DEVICES if has_devices else ResourceKind.CPUS
    shape = job.shape
    need, base = (shape.devices, 0) if resource is ResourceKind.DEVICES else (shape.cpus, shape.ps * shape.ps_cpus)
    return size_of(attempt.workers) * need + base


def _next_to_end(spec: JobSpec, live: Sequence[ReplicaRecord]) -> Sequence[ReplicaRecord]:
    """Return the replicas to stop next: those that no other replica needs.

    With parameter servers the workers compute for the chief, which could not save in the middle of a step without them.
    """
    has_servers = any(each.type == "ps" for each in spec.replicas)
    leaders = [each for each in live if has_servers and each.type == "chief"]
    served = [each for each in live if each.type not in _SERVERS]
    return leaders or served or live


def _format_workers(workers: int) -> str:
    return f"{workers} worker" + ("" if workers == 1 else "s")


def _unused_indices(used: set[int], count: int) -> list[int]:
    """Return the lowest indices that no worker of the attempt ever had."""
    found: list[int] = []
    number = 0
    while len(found) < count:
        if number not in used:
            found.append(number)
        number += 1
    return found
