"""`KubernetesBackend`: the `Backend` of a Kubernetes cluster. Jobs are objects, workers are pods.

`observe` reports the desired state as if it were reached. `apply` records the desired state and starts reconciling
towards it. `wait` processes watch events and write results, reconciles, and returns when a new round is needed; rounds
are batched during bursts. Everything that must survive is stored in objects of the cluster, so the process may be
killed at any time. Decisions, leader election (`leader.py`) and the HTTP client (`transport/`) live elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.backends.kubernetes.api.assignment import current_nodes
from sterna.backends.kubernetes.api.monitor_protocol import Batch
from sterna.backends.kubernetes.api.resources import NODES, ApiServer, Delta, DeltaKind, Inbox, Write, WriteResult
from sterna.backends.kubernetes.cache.cluster_state import ClusterState, StateHooks
from sterna.backends.kubernetes.cache.job_entry import JobEntry, JobEvent, clear_verdict
from sterna.backends.kubernetes.cache.node_facts import describe_labels
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.reservations import reservations
from sterna.backends.kubernetes.cache.snapshot import SnapshotHeader, build_snapshot
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.cache.watched_resources import watched_resources
from sterna.backends.kubernetes.controllers.controller import Controller
from sterna.backends.kubernetes.controllers.kubeshare import KubeShareController
from sterna.backends.kubernetes.controllers.mpi import MpiController
from sterna.backends.kubernetes.controllers.plain_pod import PlainPodController
from sterna.backends.kubernetes.controllers.pods import PodController, deletion_of
from sterna.backends.kubernetes.controllers.recovery import recover
from sterna.backends.kubernetes.controllers.urgent_share_pods import placements
from sterna.backends.kubernetes.controllers.write_results import WriteResults
from sterna.backends.kubernetes.lifecycle.replicas import place_replicas
from sterna.backends.kubernetes.pods.gang import ClusterDomain
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.events import EventBuilder, loss_sentence
from sterna.backends.kubernetes.status.status_writer import StatusWriter
from sterna.control.cluster_history import ClusterHistory
from sterna.control.job_state import is_stale
from sterna.kinds.context import ParseContext
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.resource import PODS, Resource
from sterna.model.cluster import Ints
from sterna.model.plan import Action, ActionKind, Decision, Outcome
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, JobKey, Snapshot

_GATHER_SECONDS = 0.02
"""Delay between the first event and the round, so that events of one burst share a round."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 0.2
"""Bounds of the pause between two rounds."""
_PAUSE_PER_ROUND = 3.0
"""Pause after a round as a multiple of its duration, within the bounds above."""
_LARGE_GANG, _RECONCILE_SECONDS_PER_POD = 64, 0.0004
"""A gang of at least this many pods is reconciled at most once per this time, multiplied by its pods."""
_ERROR_RETRY_SECONDS = 30.0
"""Delay before a job whose reconcile raised an exception is reconciled again."""
_REQUIRED = frozenset({PODS, NODES})
"""Resources without which no decision is possible."""


def _raise(error: Exception) -> None:
    raise error


@dataclass(frozen=True)
class BackendConfig:
    """Settings that do not change while the operator runs."""

    namespace: str = ""
    """Namespace whose jobs are managed; empty for all."""
    identity: str = "operator"
    gather_seconds: float = 0.0
    """Time to let further events arrive after the first one, because every pass has a fixed cost."""
    context: ParseContext = field(default_factory=ParseContext)
    domain: ClusterDomain = field(default_factory=ClusterDomain)
    evicts_unsaved: bool = False
    """Serving pods and higher priorities may stop jobs that have not shown that they can save."""


@dataclass(frozen=True)
class BackendHooks:
    """Callbacks of the application. All but `on_error` run with the backend's lock held."""

    before_reconcile: Callable[[float], None] = lambda now: None
    """Called with the current time in every pass, before jobs are reconciled."""
    on_write_result: Callable[[WriteResult], None] = lambda result: None
    on_job_event: Callable[[JobEvent, str], None] = lambda event, uid: None
    """Called with the uid of the job."""
    on_error: Callable[[Exception], None] = _raise
    """Called for an exception about one watch event or one job, after all others were processed."""


class KubernetesBackend:
    """Backend of one cluster. `lock` guards all state: other threads take it before they read."""

    def __init__(
        self,
        server: ApiServer,
        inbox: Inbox,
        clock: Callable[[], float],
        config: BackendConfig | None = None,
        progress: Progress | None = None,
        hooks: BackendHooks | None = None,
    ) -> None:
        self._server, self.inbox, self.clock = server, inbox, clock
        self._config, self._hooks = config or BackendConfig(), hooks or BackendHooks()
        state_hooks = StateHooks(self._on_arrival, self._on_departure, self._restore_assignment)
        self.state = ClusterState(
            self._config.context, progress or Progress(), clock, self._config.namespace, state_hooks
        )
        self.timers = Timers()
        self.status_writer = StatusWriter(self.state, lambda: self._in_flight)
        self.recorder = EventRecorder(EventBuilder(self._config.identity))
        shared = self.state, self.timers, self._config.domain, self.recorder, self._record_event
        self.pods = PodController(*shared)
        self._controllers: Mapping[PodOwnership, Controller] = {
            PodOwnership.OPERATOR: self.pods,
            PodOwnership.KUBESHARE: KubeShareController(*shared),
            PodOwnership.MPI_OPERATOR: MpiController(self.state, self.pods),
            PodOwnership.BARE_POD: PlainPodController(self.state, self.pods, server),
        }
        self.write_results = WriteResults(self.state, self._controllers, self.pods, self.status_writer, self.recorder)
        self._outgoing: list[Write] = []
        self._in_flight = 0
        self.history = ClusterHistory()
        self._row_keys: Ints = np.empty(0, dtype=np.int64)
        """Job keys of the last snapshot, by row."""
        self._unsynced: set[Resource] = set()
        self.absent: dict[Resource, str] = {}
        """Resources that the server does not serve or allow, with a sentence for the administrator."""
        self.is_ready = False
        """True once the caches are synced and the state of a previous leader was recovered."""
        self._requested_at = self._observed_at = -NEVER
        self._round_at = -NEVER
        self._is_closed = False
        self.lock = threading.RLock()

    def start(self) -> None:
        """List and watch all resources."""
        followed = watched_resources(self._config.namespace)
        self._unsynced = {each.resource for each in followed}
        self._server.follow(followed, self.inbox)

    # Backend protocol.

    def observe(self) -> Snapshot:
        with self.lock:
            return self._build_snapshot()

    def _build_snapshot(self) -> Snapshot:
        state, now = self.state, self.clock()
        self._observed_at = now
        state.work_queue.clear_round_request()
        self._requested_at = -NEVER
        serving = reservations(state)
        state.write_table()
        history = self.history
        history.note_arrival(state.arrived_at)
        instant = SnapshotHeader(
            now,
            history.last_action,
            history.last_event,
            history.finished_service,
            serving,
            self._config.evicts_unsaved,
        )
        snapshot = build_snapshot(state.table, state.capacity.table(), state.assignments, state.progress, instant)
        self._row_keys = snapshot.jobs.key
        return snapshot

    def _set_reasons(self, reasons: Sequence[Reason], actions: Sequence[Action]) -> None:
        """Store the reasons of a decision about the last snapshot."""
        now = self.clock()
        changes = {action.key: action for action in actions if action.before.workers}
        for reason in reasons:
            entry = self.state.entries.get(self._row_keys.item(reason.row))
            if entry is None or entry.reason == reason:
                continue
            if entry.reason is not None and entry.reason[2:] == reason[2:]:
                entry.reason = reason  # only its row changed
            else:
                self.explain(entry, reason, now, loss_sentence(entry, changes.get(JobKey(entry.key)), now))
            if entry.job.persisted.not_before <= now:
                clear_verdict(entry)
            self.status_writer.schedule(entry, now)

    def explain(self, entry: JobEntry, reason: Reason, now: float, loss: str = "") -> None:
        """Record an event for a reason, with the work that the change loses, and show it in the next status."""
        self.recorder.record_decision(entry, reason, now, loss)
        entry.reason = reason
        entry.sentence = describe_labels(reason.sentence, entry.parsed_job.needs.required)

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        """Record reasons and desired assignments, and start reconciling. A decision that a crash discards is made
        again."""
        outcomes = []
        with self.lock:
            self._set_reasons(decision.reasons, decision.plan.actions)
            if not decision.plan.actions:
                return ()
            for action in decision.plan.actions:
                entry = self.state.entries.get(action.key)
                if entry is None or self._is_stale(entry, action):
                    outcomes.append(Outcome.STALE)
                    continue
                self._apply_action(entry, action)
                outcomes.append(Outcome.APPLIED)
            self._reconcile()
            self._send()
        return outcomes

    def _is_stale(self, entry: JobEntry, action: Action) -> bool:
        names, capacity = self.state.capacity.names, self.state.capacity
        return not entry.wants_to_run or is_stale(
            action,
            entry.job.persisted,
            entry.assignment,
            self.clock(),
            len(names),
            lambda row: capacity.is_open(names[row]),
        )

    def _apply_action(self, entry: JobEntry, action: Action) -> None:
        now, names = self.clock(), self.state.capacity.names
        evictor = self.state.entries.get(action.evictor)
        entry.job.persisted.apply(action, now, names, evictor.name if evictor is not None else "")
        self.history.note_action(action.kind, now)
        if action.cpu_share is not None:
            self.state.work_queue.mark_changed(entry)
        if action.kind is ActionKind.SET_CPU_SHARE:
            return
        if action.kind is ActionKind.START:
            entry.assigned_at = now
        held_gpus = {key: pod.gpu_id for key, pod in entry.job.pods.items() if pod.gpu_id}
        gpu_ids = self.state.capacity.gpu_fractions.names() if action.after.slots else None
        found = place_replicas(entry.parsed_job, action.after, names, current_nodes(entry.job), held_gpus, gpu_ids)
        self.state.assign(entry, found, action.after)

    def take_reports(self, batches: Sequence[Batch], now: float) -> None:
        """Process batches of progress reports."""
        state = self.state
        if state.progress.take(batches, state.pods.find, now):
            state.work_queue.request_round()
        for key, lost in state.progress.pop_broken():
            self.recorder.record_broken_save(state.entries[key], lost, now)
        for uid in {pod.uid for batch in batches for pod in batch.pods}:
            found = state.pods.find(uid)
            entry = state.entries.get(found[0].key) if found is not None else None
            if entry is not None:
                state.work_queue.mark_row_stale(entry)
                self.status_writer.on_progress(entry, now)

    # Watch events, timers, reconciling.

    @property
    def is_synced(self) -> bool:
        """True once every watched resource has been listed."""
        return not self._unsynced

    def prepare(self, seconds: float | None = None) -> bool:
        """Wait until the caches are synced, at most for `seconds`; return True if they are."""
        until = NEVER if seconds is None else self.clock() + seconds
        while not self._is_closed:
            self._drain_inbox()
            now = self.clock()
            if not self._unsynced or now >= until:
                break
            self.inbox.wait(None if until == NEVER else until - now)
        return self.is_synced

    def watch_only(self, seconds: float) -> None:
        """Process events for `seconds` without acting, while another replica leads."""
        self.inbox.wait(seconds)
        self._drain_inbox()

    def become_leader(self) -> int:
        """Start acting: recover the state of the previous leader; return the number of assigned jobs."""
        self._drain_inbox()
        with self.lock:
            self.state.is_standing_by = False
            self.is_ready = True
            found = recover(self.state, self._controllers, self.clock())
            for entry in self.state.entries.values():
                self.status_writer.restore(entry)
            return found

    def wait(self, until: float) -> bool:
        """Reconcile until a new round is needed, at most until `until`."""
        now = self.clock()
        if self._observed_at > -NEVER:
            took = max(0.0, now - self._observed_at)
            pause = min(max(_PAUSE_PER_ROUND * took, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
            self._round_at = now + pause
        while not self._is_closed:
            self._process()
            now = self.clock()
            if self.state.work_queue.needs_round and self._requested_at == -NEVER:
                self._requested_at = now
            due_at = (
                max(self._requested_at + _GATHER_SECONDS, self._round_at)
                if self.state.work_queue.needs_round
                else NEVER
            )
            if now >= min(until, due_at):
                return True
            at = min(until, due_at, self.timers.next_at, self.status_writer.next_at)
            if self.inbox.wait(None if at == NEVER else max(at - now, 0.0)) and self._config.gather_seconds:
                time.sleep(self._config.gather_seconds)  # process a burst in one pass
        return False

    def wake(self) -> None:
        """End a wait early. Thread-safe."""
        self.inbox.wake()

    def close(self) -> None:
        self._is_closed = True
        self.inbox.wake()

    def drain(self, seconds: float) -> None:
        """Wait for the results of all writes in flight, at most for `seconds`."""
        until = self.clock() + seconds
        while self._in_flight > 0 and (now := self.clock()) < until:
            self.inbox.wait(until - now)
            self._drain_inbox()

    def _process(self) -> None:
        """Run one pass: events, hooks, timers, reconciles, status writes."""
        self._drain_inbox()
        with self.lock:
            now = self.clock()
            self._hooks.before_reconcile(now)
            self._fire_timers(now)
            self._reconcile()
            self._outgoing += self.status_writer.due_writes(now, self._hooks.on_error)
            self._send()

    def _drain_inbox(self) -> None:
        items = self.inbox.take()
        if not items:
            return
        with self.lock:
            now, errors = self.clock(), list[Exception]()
            for item in items:
                try:
                    self._handle(item, now)
                except Exception as error:  # continue with the other items
                    errors.append(error)
        for each in errors:
            self._hooks.on_error(each)

    def _handle(self, item: Delta | WriteResult, now: float) -> None:
        if isinstance(item, WriteResult):
            self._in_flight -= 1
            self._hooks.on_write_result(item)
            self.write_results.handle(item, now)
        elif item.object is not None:
            self.state.take(item)
        else:
            self._note_resource(item)

    def _note_resource(self, delta: Delta) -> None:
        if delta.change is DeltaKind.ABSENT:
            self.absent[delta.resource] = delta.why
            self.state.absent.add(delta.resource)
            if delta.resource in _REQUIRED:
                return
        else:
            self.absent.pop(delta.resource, None)
            self.state.absent.discard(delta.resource)
            self.state.work_queue.wake_blocked()
        self._unsynced.discard(delta.resource)

    def _fire_timers(self, now: float) -> None:
        if self.timers.next_at > now:
            return
        for key in self.timers.due(now):
            entry = self.state.entries.get(key)
            if entry is not None:
                entry.next_reconcile_at = NEVER
                self.state.work_queue.enqueue(entry)
                if entry.job.persisted.not_before <= now and entry.wants_to_run and not entry.replicas:
                    self.state.work_queue.request_round()
        self.write_results.expire_unknown(now)
        if self.state.capacity.is_distrusting:
            self.state.work_queue.request_round()
            self.timers.set(self.state.capacity.trust_again(now))

    def _reconcile(self) -> None:
        """Reconcile every enqueued job and place urgent SharePods."""
        now, state, errors = self.clock(), self.state, list[Exception]()
        while keys := state.work_queue.drain():
            for key in keys:
                entry = state.entries.get(key)
                if entry is None or self._is_too_soon(entry, now):
                    continue
                try:
                    self._outgoing += self._controllers[entry.parsed_job.ownership].reconcile(entry, now)
                    self.status_writer.schedule(entry, now)
                except Exception as error:  # continue with the other jobs
                    errors.append(error)
                    self.timers.set(now + _ERROR_RETRY_SECONDS, entry)
        self._outgoing += placements(state, now)
        for pod in state.orphans:
            self._outgoing.append(deletion_of(pod, None))
        state.orphans.clear()
        for each in errors:
            self._hooks.on_error(each)

    def _is_too_soon(self, entry: JobEntry, now: float) -> bool:
        """Defer a large gang, whose reconcile visits all its pods, so that one pass covers several pod events."""
        pods = len(entry.job.pods)
        at = entry.reconciled_at + pods * _RECONCILE_SECONDS_PER_POD
        if pods < _LARGE_GANG or now >= at:
            entry.reconciled_at = now
            return False
        self.timers.set(at, entry)
        return True

    def _send(self) -> None:
        self._outgoing += self.recorder.drain()
        if self._outgoing:
            writes, self._outgoing = self._outgoing, []
            self._in_flight += len(writes)
            self._server.send(writes)

    def _record_event(self, entry: JobEntry, what: JobEvent) -> None:
        self._hooks.on_job_event(what, entry.parsed_job.ref.uid)
        if what in (JobEvent.COMPLETED, JobEvent.FAILED):
            is_complete = what is JobEvent.COMPLETED
            self.history.note_end(self.clock(), entry.job.persisted.attained if is_complete else None)
            self.state.progress.forget(entry.key, is_complete)

    def _on_arrival(self, entry: JobEntry) -> None:
        if self.is_ready:  # jobs found during recovery were created before
            self._record_event(entry, JobEvent.CREATED)

    def _restore_assignment(self, entry: JobEntry) -> None:
        """Assign a repaired job to the nodes of its pods, which may have kept running while it was invalid."""
        controller = self._controllers[entry.parsed_job.ownership]
        found = controller.find_replicas(entry) if entry.wants_to_run and not entry.replicas else []
        if found:
            self.state.reassign(entry, found)

    def _on_departure(self, entry: JobEntry) -> None:
        if self.is_ready:
            self._record_event(entry, JobEvent.DELETED)
