"""The Kubernetes world behind the protocol that every world has: jobs are objects, workers are pods.

`observe` shows what shall be as if it were, `apply` notes what shall be and sets out for it, `wait` takes in what the
server tells, sees to what was begun, and ends when there is something to decide. Rounds are batched while a burst
arrives. Everything that must survive is in objects of the cluster, so this may be killed at any moment; deciding is not
done here, nor leading (`leader.py`), nor talking to a server (`client.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.backends.kubernetes.api.assignment import current_of
from sterna.backends.kubernetes.api.resources import NODES, ApiServer, Change, Delta, Inbox, Write, WriteResult
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, cleared
from sterna.backends.kubernetes.cache.node_facts import in_plain_words
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.reservations import reservations
from sterna.backends.kubernetes.cache.snapshot import Instant, observed
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.cache.watched_resources import followed_in
from sterna.backends.kubernetes.controllers.mpi import MpiCarrier
from sterna.backends.kubernetes.controllers.plain_pod import PodCarrier
from sterna.backends.kubernetes.controllers.pods import Reconciler, deletion_of
from sterna.backends.kubernetes.controllers.recovery import recover, replicas_found
from sterna.backends.kubernetes.controllers.share_pods import placements
from sterna.backends.kubernetes.controllers.write_results import WriteResults
from sterna.backends.kubernetes.lifecycle.replicas import replicas
from sterna.backends.kubernetes.server.metrics import Happened
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.events import Reporter
from sterna.backends.kubernetes.status.status_writer import StatusWriter
from sterna.kinds.context import ClusterDomain, ParseContext
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.resource import PODS, Resource
from sterna.model.plan import Action, ActionKind, Mark, Outcome
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, Snapshot
from sterna.model.speedup import Floats

_GATHER_SECONDS = 0.02
"""What arrives together is decided on together."""
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.05, 0.2
"""Between rounds of a burst."""
_PAUSE_PER_ROUND = 3.0
"""A round that took long is followed by a pause so many times as long, within those bounds."""
_LARGE, _LOOK_SECONDS_PER_POD = 64, 0.0004
"""A gang of so many pods is looked at no more often than this times their number."""
_MISHAP_SECONDS = 30.0
"""A job that could not be looked at is looked at again so much later."""
_NEEDED = frozenset({PODS, NODES})
"""Without these nothing can be decided."""


@dataclass(frozen=True)
class BackendConfig:
    """What is the same for as long as the operator lives."""

    namespace: str = ""
    """Jobs of this namespace only; empty: of all."""
    identity: str = "operator"
    gather_seconds: float = 0.0
    """How long to let news gather after the first: each look costs something, however little it finds."""
    context: ParseContext = field(default_factory=ParseContext)
    around: ClusterDomain = field(default_factory=ClusterDomain)


class KubernetesBackend:
    """A cluster of Kubernetes nodes."""

    def __init__(
        self,
        server: ApiServer,
        inbox: Inbox,
        clock: Callable[[], float],
        circumstances: BackendConfig | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._server, self.inbox, self.clock = server, inbox, clock
        self._about = circumstances or BackendConfig()
        self.state = ClusterState(self._about.context, progress or Progress(), clock, self._about.namespace)
        self.timers = Timers()
        self.status_writer = StatusWriter(self.state, lambda: self._under_way)
        self.recorder = EventRecorder(Reporter(self._about.identity))
        self.reconciler = Reconciler(self.state, self.timers, self._about.around, self.recorder, self._note)
        self.answers = WriteResults(self.state, self.reconciler, self.status_writer, self.recorder, self.timers)
        pods, mpi = PodCarrier(self.state, self.reconciler, server), MpiCarrier(self.state, self.reconciler)
        self._controllers: dict[PodOwnership, Callable[[JobEntry, float], list[Write]]] = {
            PodOwnership.PODS: self.reconciler.look,
            PodOwnership.SHARE_PODS: self.reconciler.look,
            PodOwnership.MPI: mpi.look,
            PodOwnership.POD: pods.look,
        }
        self.state.on_arrival, self.state.on_departure = self._note_arrival, self._note_departure
        self.state.on_mended = self._replica_again
        self._outgoing: list[Write] = []
        self._under_way = 0
        self._served: list[float] = []
        self._unsynced: set[Resource] = set()
        self.absent: dict[Resource, str] = {}
        """What the server does not know or show, and what to do about it."""
        self.is_ready = False
        """Everything has been seen, and what a predecessor left was taken over."""
        self._last_action = self._last_event = -NEVER
        self._news_at = self._observed_at = -NEVER
        self._round_at = -NEVER
        self._is_closed = False
        self.lock = threading.RLock()
        """Held while anything changes; whoever looks from another thread takes it too."""
        self.errands: list[Callable[[float], None]] = []
        """Done each time before jobs are looked at."""
        self.on_answer: Callable[[WriteResult], None] = lambda answer: None
        self.on_happened: Callable[[Happened, str], None] = lambda what, uid: None
        self.on_mishap: Callable[[Exception], None] = _raised
        """Told what went wrong with a single piece of news, or with a single job, after all others were seen to."""

    def start(self) -> None:
        """Begin to follow the cluster."""
        followed = followed_in(self._about.namespace)
        self._unsynced = {each.resource for each in followed}
        self._server.follow(followed, self.inbox)

    # What the controller sees.

    def observe(self) -> Snapshot:
        with self.lock:
            return self._observed()

    def _observed(self) -> Snapshot:
        state, now = self.state, self.clock()
        self._observed_at = now
        state.work_queue.has_news, self._news_at = False, -NEVER
        serving = reservations(state)
        state.write_table()
        self._last_event = max(self._last_event, state.arrived_at)
        instant = Instant(now, self._last_action, self._last_event, self._history, serving)
        return observed(state.table, state.capacity.table(), state.assignments, state.progress, instant)

    def _history(self) -> Floats:
        return np.sort(np.array(self._served, dtype=np.float64))

    def give_reasons(self, snapshot: Snapshot, reasons: Sequence[Reason]) -> None:
        """Why jobs wait or changed, as the round that was just decided saw it."""
        keys = snapshot.jobs.key
        with self.lock:
            now = self.clock()
            for reason in reasons:
                entry = self.state.entries.get(keys.item(reason.row))
                if entry is None or entry.reason == reason:
                    continue
                if entry.reason is not None and entry.reason[2:] == reason[2:]:
                    entry.reason = reason  # it is only in another row
                else:
                    self.explain(entry, reason, now)
                if entry.job.memory.not_before <= now:
                    cleared(entry)
                self.status_writer.consider(entry, now)

    def explain(self, entry: JobEntry, reason: Reason, now: float) -> None:
        """Tell why a job waits or changed, in an event and, when its status is next told, there."""
        self.recorder.decided(entry, reason, now)
        entry.reason = reason
        entry.words = in_plain_words(reason.sentence, entry.parsed_job.needs.required)

    # What is decided.

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Note where jobs shall sit and set out for it. A decision that a crash takes back is made again."""
        outcomes = []
        with self.lock:
            for action in actions:
                entry = self.state.entries.get(action.key)
                if entry is None or self._is_stale(entry, action):
                    outcomes.append(Outcome.STALE)
                    continue
                self._carry_out(entry, action)
                outcomes.append(Outcome.APPLIED)
            self._reconcile()
            self._send()
        return outcomes

    def _is_stale(self, entry: JobEntry, action: Action) -> bool:
        if not entry.wants_to_run or entry.assignment != action.before:
            return True
        if action.kind is ActionKind.START and entry.job.memory.not_before > self.clock():
            return True
        names, capacity = self.state.capacity.names, self.state.capacity
        new = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers}
        return not all(0 <= node < len(names) and capacity.is_open(names[node]) for node in new)

    def _carry_out(self, entry: JobEntry, action: Action) -> None:
        memory, now = entry.job.memory, self.clock()
        if action.cpu_share is not None:
            memory.cpu_share = action.cpu_share
            self.state.work_queue.changed.add(entry.key)
            self.state.work_queue.dirty.add(entry.key)
        if action.kind is ActionKind.SET_CPU_SHARE:
            return
        if action.kind is ActionKind.MIGRATE:
            self._mark_move(entry, action)
        else:
            self._last_action = now
        if action.kind is ActionKind.START:
            entry.seated_at = now
            if action.mark is Mark.PROMOTED:
                memory.attained, memory.executed_before = 0.0, memory.executed
                memory.promotions += 1
        elif action.kind is ActionKind.STOP:
            memory.waiting_since = now
        names = self.state.capacity.names
        held = {key: pod.gpu_id for key, pod in entry.job.pods.items() if pod.gpu_id}
        gpu_ids = self.state.capacity.parts.names() if action.after.slots else None
        found = replicas(entry.parsed_job, action.after, names, current_of(entry.job), held, gpu_ids)
        self.state.assign(entry, found, action.after)

    def _mark_move(self, entry: JobEntry, action: Action) -> None:
        """Remember where it was and whom it made room for."""
        memory, names = entry.job.memory, self.state.capacity.names
        old, new = ({node for node, _ in assignment.workers} for assignment in (action.before, action.after))
        memory.moves += 1
        memory.moved_at, memory.moved_from = self.clock(), names[min(old - new or old)]
        evictor = self.state.entries.get(action.evictor)
        memory.evictor = evictor.name if evictor is not None else ""

    # What happens by itself.

    def prepare(self, seconds: float | None = None) -> bool:
        """Wait until everything is known, or for so long; whether it is."""
        until = NEVER if seconds is None else self.clock() + seconds
        while not self._is_closed:
            self._take_in()
            now = self.clock()
            if not self._unsynced or now >= until:
                break
            self.inbox.wait(None if until == NEVER else until - now)
        return not self._unsynced

    def idle(self, seconds: float) -> None:
        """Stay informed for so long, while somebody else acts."""
        self.inbox.wait(seconds)
        self._take_in()

    def take_over(self) -> int:
        """Go on with what a predecessor left, from now on; how many jobs of it have a home."""
        self._take_in()
        with self.lock:
            self.state.is_standing_by = False
            self.is_ready = True
            found = recover(self.state, self.clock())
            for entry in self.state.entries.values():
                self.status_writer.recall(entry)
            return found

    def wait(self, until: float) -> bool:
        """See to what was begun, until there is something to decide."""
        now = self.clock()
        if self._observed_at > -NEVER:
            took = max(0.0, now - self._observed_at)
            pause = min(max(_PAUSE_PER_ROUND * took, _LEAST_PAUSE_SECONDS), _MOST_PAUSE_SECONDS)
            self._round_at = now + pause
        while not self._is_closed:
            self._attend()
            now = self.clock()
            if self.state.work_queue.has_news and self._news_at == -NEVER:
                self._news_at = now
            due_at = max(self._news_at + _GATHER_SECONDS, self._round_at) if self.state.work_queue.has_news else NEVER
            if now >= min(until, due_at):
                return True
            at = min(until, due_at, self.timers.next_at, self.status_writer.next_at)
            if self.inbox.wait(None if at == NEVER else max(at - now, 0.0)) and self._about.gather_seconds:
                time.sleep(self._about.gather_seconds)  # what comes in one by one is seen to together
        return False

    def wake(self) -> None:
        """Something was asked for; look at it. Any thread may call."""
        self.inbox.wake()

    def close(self) -> None:
        self._is_closed = True
        self.inbox.wake()

    def drain(self, seconds: float) -> None:
        """Wait for the answers to what was sent, for so long at most."""
        until = self.clock() + seconds
        while self._under_way > 0 and (now := self.clock()) < until:
            self.inbox.wait(until - now)
            self._take_in()

    def _attend(self) -> None:
        """Everything that may have become known or possible since the last time."""
        self._take_in()
        with self.lock:
            now = self.clock()
            for errand in self.errands:
                errand(now)
            self._keep_time(now)
            self._reconcile()
            self._outgoing += self.status_writer.writes(now, self.on_mishap)
            self._send()

    def _take_in(self) -> None:
        items = self.inbox.take()
        if not items:
            return
        with self.lock:
            now, mishaps = self.clock(), list[Exception]()
            for item in items:
                try:
                    self._take(item, now)
                except Exception as mishap:  # the others are not lost because of one
                    mishaps.append(mishap)
        for each in mishaps:
            self.on_mishap(each)

    def _take(self, item: Delta | WriteResult, now: float) -> None:
        if isinstance(item, WriteResult):
            self._under_way -= 1
            self.on_answer(item)
            self.answers.take(item, now)
        elif item.object is not None:
            self.state.take(item)
        else:
            self._note_resource(item)

    def _note_resource(self, delta: Delta) -> None:
        if delta.change is Change.ABSENT:
            self.absent[delta.resource] = delta.why
            self.state.absent.add(delta.resource)
            if delta.resource in _NEEDED:
                return
        else:
            self.absent.pop(delta.resource, None)
            self.state.absent.discard(delta.resource)
            self.state.work_queue.note_room()
        self._unsynced.discard(delta.resource)

    def _keep_time(self, now: float) -> None:
        if self.timers.next_at > now:
            return
        for key in self.timers.due(now):
            entry = self.state.entries.get(key)
            if entry is not None:
                entry.look_at = NEVER
                self.state.work_queue.dirty.add(key)
                if entry.job.memory.not_before <= now and entry.wants_to_run and not entry.replicas:
                    self.state.work_queue.has_news = True
        self.answers.look(now)
        if self.state.capacity.is_distrusting:
            self.state.work_queue.has_news = True
            self.timers.set(self.state.capacity.trust_again(now))

    def _reconcile(self) -> None:
        """Do the next thing for every job that may not be as it shall be."""
        now, state, mishaps = self.clock(), self.state, list[Exception]()
        while state.work_queue.dirty:
            keys, state.work_queue.dirty = sorted(state.work_queue.dirty), set()
            for key in keys:
                entry = state.entries.get(key)
                if entry is None or self._is_too_soon(entry, now):
                    continue
                try:
                    self._outgoing += self._controllers[entry.parsed_job.ownership](entry, now)
                    self.status_writer.consider(entry, now)
                except Exception as mishap:  # nobody else's job waits because of it
                    mishaps.append(mishap)
                    self.timers.set(now + _MISHAP_SECONDS, entry)
        self._outgoing += placements(state, now)
        for pod in state.orphans:
            self._outgoing.append(deletion_of(pod, None))
        state.orphans.clear()
        for each in mishaps:
            self.on_mishap(each)

    def _is_too_soon(self, entry: JobEntry, now: float) -> bool:
        """Whether to let more news of a large gang gather: each look goes through all of its pods, and they come one by
        one."""
        pods = len(entry.job.pods)
        at = entry.looked_at + pods * _LOOK_SECONDS_PER_POD
        if pods < _LARGE or now >= at:
            entry.looked_at = now
            return False
        self.timers.set(at, entry)
        return True

    def _send(self) -> None:
        self._outgoing += self.recorder.take()
        if self._outgoing:
            writes, self._outgoing = self._outgoing, []
            self._under_way += len(writes)
            self._server.send(writes)

    # What is told.

    def _note(self, entry: JobEntry, what: Happened) -> None:
        """Something happened to a job that others count."""
        self.on_happened(what, entry.parsed_job.ref.uid)
        if what in (Happened.COMPLETED, Happened.FAILED):
            is_complete = what is Happened.COMPLETED
            if is_complete:
                self._served.append(entry.job.memory.attained)
            self._last_event = self.clock()
            self.state.progress.forget(entry.key, is_complete)

    def _note_arrival(self, entry: JobEntry) -> None:
        if self.is_ready:  # those that were there before us are not our doing
            self._note(entry, Happened.CREATED)

    def _replica_again(self, entry: JobEntry) -> None:
        """Its pods may have run on while nobody could read what was submitted."""
        found = replicas_found(self.state, entry) if entry.wants_to_run and not entry.replicas else []
        if found:
            self.state.reassign(entry, found)

    def _note_departure(self, entry: JobEntry) -> None:
        if self.is_ready:
            self._note(entry, Happened.DELETED)


def _raised(mishap: Exception) -> None:
    raise mishap
