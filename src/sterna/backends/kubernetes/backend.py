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
from sterna.backends.kubernetes.api.job import Carrier
from sterna.backends.kubernetes.api.resources import (
    NODES,
    PODS,
    Answer,
    ApiServer,
    Change,
    Delta,
    Inbox,
    Resource,
    Write,
)
from sterna.backends.kubernetes.cache.cluster_state import World
from sterna.backends.kubernetes.cache.job_entry import Entry, cleared
from sterna.backends.kubernetes.cache.node_facts import in_plain_words
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.reservations import reservations
from sterna.backends.kubernetes.cache.snapshot import Instant, observed
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.cache.watched_resources import followed_in
from sterna.backends.kubernetes.controllers.mpi import MpiCarrier
from sterna.backends.kubernetes.controllers.plain_pod import PodCarrier
from sterna.backends.kubernetes.controllers.pods import Reconciler, deletion_of
from sterna.backends.kubernetes.controllers.recovery import recover, seats_found
from sterna.backends.kubernetes.controllers.share_pods import placements
from sterna.backends.kubernetes.controllers.write_results import Answers
from sterna.backends.kubernetes.kinds.context import Around, ReadContext
from sterna.backends.kubernetes.lifecycle.replicas import seats
from sterna.backends.kubernetes.server.metrics import Happened
from sterna.backends.kubernetes.status.event_recorder import Chronicle
from sterna.backends.kubernetes.status.events import Reporter
from sterna.backends.kubernetes.status.status_writer import Teller
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
class Circumstances:
    """What is the same for as long as the operator lives."""

    namespace: str = ""
    """Jobs of this namespace only; empty: of all."""
    identity: str = "operator"
    gather_seconds: float = 0.0
    """How long to let news gather after the first: each look costs something, however little it finds."""
    context: ReadContext = field(default_factory=ReadContext)
    around: Around = field(default_factory=Around)


class KubernetesBackend:
    """A cluster of Kubernetes nodes."""

    def __init__(
        self,
        server: ApiServer,
        inbox: Inbox,
        clock: Callable[[], float],
        circumstances: Circumstances | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._server, self.inbox, self.clock = server, inbox, clock
        self._about = circumstances or Circumstances()
        self.world = World(self._about.context, progress or Progress(), clock, self._about.namespace)
        self.timers = Timers()
        self.teller = Teller(self.world, lambda: self._under_way)
        self.chronicle = Chronicle(Reporter(self._about.identity))
        self.reconciler = Reconciler(self.world, self.timers, self._about.around, self.chronicle, self._note)
        self.answers = Answers(self.world, self.reconciler, self.teller, self.chronicle, self.timers)
        pods, mpi = PodCarrier(self.world, self.reconciler, server), MpiCarrier(self.world, self.reconciler)
        self._carriers: dict[Carrier, Callable[[Entry, float], list[Write]]] = {
            Carrier.PODS: self.reconciler.look,
            Carrier.SHARE_PODS: self.reconciler.look,
            Carrier.MPI: mpi.look,
            Carrier.POD: pods.look,
        }
        self.world.on_arrival, self.world.on_departure = self._note_arrival, self._note_departure
        self.world.on_mended = self._seat_again
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
        self.on_answer: Callable[[Answer], None] = lambda answer: None
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
        world, now = self.world, self.clock()
        self._observed_at = now
        world.attention.has_news, self._news_at = False, -NEVER
        serving = reservations(world)
        world.write_table()
        self._last_event = max(self._last_event, world.arrived_at)
        instant = Instant(now, self._last_action, self._last_event, self._history, serving)
        return observed(world.table, world.accounts.table(), world.assignments, world.progress, instant)

    def _history(self) -> Floats:
        return np.sort(np.array(self._served, dtype=np.float64))

    def give_reasons(self, snapshot: Snapshot, reasons: Sequence[Reason]) -> None:
        """Why jobs wait or changed, as the round that was just decided saw it."""
        keys = snapshot.jobs.key
        with self.lock:
            now = self.clock()
            for reason in reasons:
                entry = self.world.entries.get(keys.item(reason.row))
                if entry is None or entry.reason == reason:
                    continue
                if entry.reason is not None and entry.reason[2:] == reason[2:]:
                    entry.reason = reason  # it is only in another row
                else:
                    self.explain(entry, reason, now)
                if entry.job.memory.not_before <= now:
                    cleared(entry)
                self.teller.consider(entry, now)

    def explain(self, entry: Entry, reason: Reason, now: float) -> None:
        """Tell why a job waits or changed, in an event and, when its status is next told, there."""
        self.chronicle.decided(entry, reason, now)
        entry.reason = reason
        entry.words = in_plain_words(reason.sentence, entry.submitted.needs.required)

    # What is decided.

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Note where jobs shall sit and set out for it. A decision that a crash takes back is made again."""
        outcomes = []
        with self.lock:
            for action in actions:
                entry = self.world.entries.get(action.key)
                if entry is None or self._is_stale(entry, action):
                    outcomes.append(Outcome.STALE)
                    continue
                self._carry_out(entry, action)
                outcomes.append(Outcome.APPLIED)
            self._reconcile()
            self._send()
        return outcomes

    def _is_stale(self, entry: Entry, action: Action) -> bool:
        if not entry.wants_to_run or entry.assignment != action.before:
            return True
        if action.kind is ActionKind.START and entry.job.memory.not_before > self.clock():
            return True
        names, accounts = self.world.accounts.names, self.world.accounts
        new = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers}
        return not all(0 <= node < len(names) and accounts.is_open(names[node]) for node in new)

    def _carry_out(self, entry: Entry, action: Action) -> None:
        memory, now = entry.job.memory, self.clock()
        if action.cpu_share is not None:
            memory.cpu_share = action.cpu_share
            self.world.attention.changed.add(entry.key)
            self.world.attention.dirty.add(entry.key)
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
        names = self.world.accounts.names
        held = {key: pod.gpu_id for key, pod in entry.job.pods.items() if pod.gpu_id}
        gpu_ids = self.world.accounts.parts.names() if action.after.slots else None
        found = seats(entry.submitted, action.after, names, current_of(entry.job), held, gpu_ids)
        self.world.seat(entry, found, action.after)

    def _mark_move(self, entry: Entry, action: Action) -> None:
        """Remember where it was and whom it made room for."""
        memory, names = entry.job.memory, self.world.accounts.names
        old, new = ({node for node, _ in assignment.workers} for assignment in (action.before, action.after))
        memory.moves += 1
        memory.moved_at, memory.moved_from = self.clock(), names[min(old - new or old)]
        evictor = self.world.entries.get(action.evictor)
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
            self.world.is_standing_by = False
            self.is_ready = True
            found = recover(self.world, self.clock())
            for entry in self.world.entries.values():
                self.teller.recall(entry)
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
            if self.world.attention.has_news and self._news_at == -NEVER:
                self._news_at = now
            due_at = max(self._news_at + _GATHER_SECONDS, self._round_at) if self.world.attention.has_news else NEVER
            if now >= min(until, due_at):
                return True
            at = min(until, due_at, self.timers.next_at, self.teller.next_at)
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
            self._outgoing += self.teller.writes(now, self.on_mishap)
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

    def _take(self, item: Delta | Answer, now: float) -> None:
        if isinstance(item, Answer):
            self._under_way -= 1
            self.on_answer(item)
            self.answers.take(item, now)
        elif item.object is not None:
            self.world.take(item)
        else:
            self._note_resource(item)

    def _note_resource(self, delta: Delta) -> None:
        if delta.change is Change.ABSENT:
            self.absent[delta.resource] = delta.why
            self.world.absent.add(delta.resource)
            if delta.resource in _NEEDED:
                return
        else:
            self.absent.pop(delta.resource, None)
            self.world.absent.discard(delta.resource)
            self.world.attention.note_room()
        self._unsynced.discard(delta.resource)

    def _keep_time(self, now: float) -> None:
        if self.timers.next_at > now:
            return
        for key in self.timers.due(now):
            entry = self.world.entries.get(key)
            if entry is not None:
                entry.look_at = NEVER
                self.world.attention.dirty.add(key)
                if entry.job.memory.not_before <= now and entry.wants_to_run and not entry.seats:
                    self.world.attention.has_news = True
        self.answers.look(now)
        if self.world.accounts.is_distrusting:
            self.world.attention.has_news = True
            self.timers.set(self.world.accounts.trust_again(now))

    def _reconcile(self) -> None:
        """Do the next thing for every job that may not be as it shall be."""
        now, world, mishaps = self.clock(), self.world, list[Exception]()
        while world.attention.dirty:
            keys, world.attention.dirty = sorted(world.attention.dirty), set()
            for key in keys:
                entry = world.entries.get(key)
                if entry is None or self._is_too_soon(entry, now):
                    continue
                try:
                    self._outgoing += self._carriers[entry.submitted.carrier](entry, now)
                    self.teller.consider(entry, now)
                except Exception as mishap:  # nobody else's job waits because of it
                    mishaps.append(mishap)
                    self.timers.set(now + _MISHAP_SECONDS, entry)
        self._outgoing += placements(world, now)
        for pod in world.orphans:
            self._outgoing.append(deletion_of(pod, None))
        world.orphans.clear()
        for each in mishaps:
            self.on_mishap(each)

    def _is_too_soon(self, entry: Entry, now: float) -> bool:
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
        self._outgoing += self.chronicle.take()
        if self._outgoing:
            writes, self._outgoing = self._outgoing, []
            self._under_way += len(writes)
            self._server.send(writes)

    # What is told.

    def _note(self, entry: Entry, what: Happened) -> None:
        """Something happened to a job that others count."""
        self.on_happened(what, entry.submitted.ref.uid)
        if what in (Happened.COMPLETED, Happened.FAILED):
            is_complete = what is Happened.COMPLETED
            if is_complete:
                self._served.append(entry.job.memory.attained)
            self._last_event = self.clock()
            self.world.progress.forget(entry.key, is_complete)

    def _note_arrival(self, entry: Entry) -> None:
        if self.is_ready:  # those that were there before us are not our doing
            self._note(entry, Happened.CREATED)

    def _seat_again(self, entry: Entry) -> None:
        """Its pods may have run on while nobody could read what was submitted."""
        found = seats_found(self.world, entry) if entry.wants_to_run and not entry.seats else []
        if found:
            self.world.reseat(entry, found)

    def _note_departure(self, entry: Entry) -> None:
        if self.is_ready:
            self._note(entry, Happened.DELETED)


def _raised(mishap: Exception) -> None:
    raise mishap
