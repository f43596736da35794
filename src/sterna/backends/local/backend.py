"""`LocalBackend`: the `Backend` of a local cluster, with real processes on slices of this machine.

`observe` reports the desired state as if already reached; `apply` records the desired state and starts reconciling
towards it; `wait` sleeps until there is something to decide, and meanwhile handles process starts, exits and progress
reports. Decisions are made by the round loop, requests are answered by `cluster.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from sterna.backends.local.equal_share_baseline import LocalBaseline
from sterna.backends.local.jobs.exits import ExitHandler, RestartBackoff
from sterna.backends.local.jobs.launching import LocalDeps
from sterna.backends.local.jobs.process_watcher import ProcessWatcher
from sterna.backends.local.jobs.reconciler import AttemptReconciler
from sterna.backends.local.kernel.wakeups import Wakeups
from sterna.backends.local.snapshot import Instant, build_snapshot
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import ACTIVE, COMPLETED
from sterna.control.cluster_history import ClusterHistory
from sterna.control.job_state import is_stale
from sterna.errors import Retry
from sterna.model.plan import Action, ActionKind, Decision, Outcome
from sterna.model.snapshot import NEVER, Snapshot

_STARTING_SECONDS = 0.02
"""Polling interval for a process that is starting."""
_RETRY_SECONDS = 1.0
"""Delay before a start or stop that the machine refused is retried."""
_LONG_ROUND_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 0.2
_BURST_PAUSE_FACTOR = 4.0
"""Pause after a round during which jobs arrived, as a multiple of its duration."""
_LEARNED_SECONDS = 2.0
"""Interval at which learned curves and read positions are written to disk."""


class LocalBackend:
    """This machine as a cluster."""

    def __init__(
        self,
        store: JobStore,
        deps: LocalDeps,
        wakeups: Wakeups,
        *,
        backoff: RestartBackoff | None = None,
        read_seconds: float = 0.25,
        evicts_unsaved: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`evicts_unsaved`: higher priorities may stop jobs that have not shown that they can save."""
        self.store, self.deps, self._evicts_unsaved = store, deps, evicts_unsaved
        self._wakeups, self._read_seconds, self._sleep = wakeups, read_seconds, sleep
        self.attempts = AttemptReconciler(store, deps)
        self.exits = ExitHandler(store, self.attempts, deps, backoff, self._note_end)
        self.watcher = ProcessWatcher(store, deps, self.exits, wakeups)
        self._empty = store.slices.table()
        self._baseline = LocalBaseline(store.slices, store.clock()) if store.slices.is_shared else None
        self.closed: dict[str, str] = store.setting("closed") or {}
        """Nodes that take no new workers: name -> `cordoned` or `draining`."""
        self.history = ClusterHistory(
            job.record.service for job in store.jobs.values() if job.record.phase == COMPLETED
        )
        self.last_arrival = -NEVER
        self._read_at = self._saved_at = -NEVER
        self._observed_at = NEVER
        self._retry_at, self._due_at = NEVER, -NEVER
        self._last_refusal = ""
        self._flags = threading.Lock()
        self._needs_round = self._is_dirty = True
        self._is_closed = self._is_held = False

    # Snapshots.

    def observe(self) -> Snapshot:
        with self._flags:
            self._needs_round = False
        with self.store.lock:
            self._observed_at = self.store.clock()
            instant = Instant(
                self._observed_at,
                self.history.last_action,
                self.history.last_event,
                frozenset(self.closed),
                self.history.finished_service,
                self._evicts_unsaved,
            )
            return build_snapshot(self.store, self._empty, instant, self._baseline)

    # Decisions.

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        """Record the desired assignments and start reconciling. A decision that a crash discards is made again."""
        outcomes = []
        with self.store.lock:
            self.store.set_reasons(decision.reasons)
            touched = []
            for action in decision.plan.actions:
                job = self.store.jobs.get(action.key)
                if job is None or self._is_stale(job, action):
                    outcomes.append(Outcome.STALE)
                    continue
                self._apply_action(job, action)
                touched.append(job)
                outcomes.append(Outcome.APPLIED)
            if touched:
                self.store.save_later(*touched)
        if touched:
            self._reconcile()
        return outcomes

    def _is_stale(self, job: LocalJob, action: Action) -> bool:
        nodes = self.store.slices.nodes
        return not job.wants_to_run or is_stale(
            action,
            job.record,
            job.assignment,
            self.store.clock(),
            len(nodes),
            lambda row: nodes[row].name not in self.closed,
        )

    def _apply_action(self, job: LocalJob, action: Action) -> None:
        now, evictor = self.store.clock(), self.store.jobs.get(action.evictor)
        job.record.apply(action, now, self.store.slices.names, evictor.name if evictor is not None else "")
        self.history.note_action(action.kind, now)
        if action.kind is not ActionKind.SET_CPU_SHARE:
            self.store.assign(job, action.after)

    # Events.

    def wait(self, until: float) -> bool:
        """Sleep until there is something to decide; handle process events meanwhile."""
        self._pause_after_round()
        while not self._is_closed:
            self._handle_events()
            now = self.store.clock()
            with self._flags:
                if self._needs_round or now >= until:
                    return True
            ended = self._wakeups.wait(self._pause_seconds(now, until))
            if ended is None:
                return False
            self.watcher.handle_ends(ended)
        return False

    def _pause_after_round(self) -> None:
        """Sleep after a long round, or one during which jobs arrived: the API gets the CPU, and one round decides on a
        whole burst of submissions."""
        now = self.store.clock()
        seconds = now - self._observed_at
        if seconds > _LONG_ROUND_SECONDS:
            is_burst = now - self.last_arrival < _MAX_PAUSE_SECONDS
            self._sleep(_MAX_PAUSE_SECONDS if is_burst else min(seconds, _MAX_PAUSE_SECONDS))
        elif self.last_arrival > self._observed_at:
            self._sleep(_BURST_PAUSE_FACTOR * seconds)
        self._observed_at = NEVER

    def wake(self) -> None:
        """Have the loop look at a change. Any thread may call."""
        self._due_at = -NEVER
        with self._flags:
            self._needs_round = self._is_dirty = True
        self._wakeups.wake()

    def hold(self, is_held: bool) -> None:
        """Keep deciding, but start and stop no processes while held."""
        self._is_held = is_held
        self.wake()

    def close(self) -> None:
        self._is_closed = True
        self._wakeups.wake()

    def _handle_events(self) -> None:
        """Handle everything that became known or possible since the last call."""
        now = self.store.clock()
        if self.watcher.inspect():
            self._request_round()
        if self.watcher.has_readers and now - self._read_at >= self._read_seconds:
            self._read_at = now
            if self.watcher.read_reports():
                self._request_round()
        if now - self._saved_at >= _LEARNED_SECONDS:
            self._saved_at = now
            self.store.save_learned_curves()
            self.watcher.save_positions()
            if self.watcher.inspect_checkpoints():
                self._request_round()
        self._handle_timers(now)
        if self._is_dirty or now >= self._retry_at:
            self._reconcile()

    def _request_round(self) -> None:
        self._due_at = -NEVER
        with self._flags:
            self._needs_round = self._is_dirty = True

    def _note_end(self, job: LocalJob) -> None:
        """Handle the completion or failure of a job."""
        is_complete = job.record.phase == COMPLETED
        self.history.note_end(self.store.clock(), job.record.service if is_complete else None)
        self.store.tracker.forget(job.key, is_complete)

    def note_arrival(self) -> None:
        self.last_arrival = self.store.clock()
        self.history.note_arrival(self.last_arrival)

    def _reconcile(self) -> None:
        if self._is_held:
            return
        with self._flags:
            self._is_dirty = False
        self._retry_at, self._due_at = NEVER, -NEVER
        try:
            self.attempts.reconcile()
            self._sweep()
        except Retry as error:
            self._retry_at = self.store.clock() + _RETRY_SECONDS
            if str(error) != self._last_refusal:
                self._last_refusal = str(error)
                self.store.note("", "error", f"The machine refused, and is asked again: {error}.")

    def _sweep(self) -> None:
        """Delete jobs marked for deletion without processes, and close attempts that never had any."""
        with self.store.lock:
            jobs = [job for job in self.store.open.values() if not job.record.is_live]
        for job in jobs:
            attempt = job.record.attempt
            if attempt is not None and attempt.counted_from:
                self.exits.close(job)
                self._request_round()
            elif job.record.deleting:
                self.exits.forget(job)
                self._request_round()

    # Timers.

    def _handle_timers(self, now: float) -> None:
        """Handle timers that are due: end of a back-off, deadline, time to live after the end."""
        if now < self._due_at:
            return
        with self.store.lock:
            jobs = list(self.store.jobs.values())
        due_at = NEVER
        for job in jobs:
            due = _due(job)
            if due > now:
                due_at = min(due_at, due)
                continue
            record = job.record
            if record.phase != ACTIVE:
                self.exits.forget(job)
            elif record.not_before and not job.assignment.workers and record.not_before <= now:
                record.not_before = 0.0
                self._request_round()
                due_at = min(due_at, _due(job))
            else:
                seconds = record.spec.deadline_seconds
                self.exits.fail(job, f"it was active for longer than the {seconds:g} s it may be")
                self._request_round()
        self._due_at = due_at

    def _pause_seconds(self, now: float, until: float) -> float | None:
        """Return how long to sleep; None: until woken."""
        if self.watcher.has_starting():
            return _STARTING_SECONDS
        at = min(until, self._due_at, self._retry_at)
        if self.watcher.has_readers:
            at = min(at, self._read_at + self._read_seconds)
        return None if at == NEVER else max(at - now, 0.0)


def _due(job: LocalJob) -> float:
    """Return the time of the next timer of a job."""
    record, spec = job.record, job.record.spec
    if record.phase != ACTIVE:
        is_kept = spec.ttl_seconds is None or record.ended_at is None or record.deleting
        return NEVER if is_kept or spec.ttl_seconds is None else (record.ended_at or 0.0) + spec.ttl_seconds
    dues = []
    if record.not_before and not job.assignment.workers:
        dues.append(record.not_before)
    if spec.deadline_seconds is not None and record.first_started_at is not None and not record.doomed:
        dues.append(record.first_started_at + spec.deadline_seconds)
    return min(dues, default=NEVER)
