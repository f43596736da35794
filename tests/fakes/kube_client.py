"""The operator's side of a cluster in memory: an `ApiServer` on virtual time, with delays and faults drawn by lot.

The queue of writes and the reflectors are the real ones, so what is simulated above it is what runs in earnest; only
the bytes do not travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.backends.kubernetes.api.envelopes import parse_rejection
from sterna.backends.kubernetes.api.resources import (
    NO_WRITE,
    NOT_LEADER,
    SUPERSEDED,
    Delta,
    Followed,
    Inbox,
    Verb,
    Write,
    WriteResult,
)
from sterna.backends.kubernetes.transport.reflector import Reflector
from sterna.backends.kubernetes.transport.write_queue import (
    RETRY_SECONDS,
    PendingWrite,
    WriteEffect,
    WriteQueue,
    backoff_seconds,
    write_effect,
)
from sterna.errors import Retry
from sterna.kinds.resource import Resource
from tests.fakes.kube_requests import Response
from tests.fakes.kube_store import Event, Refused, Selection, bookmark, encoded, error_line, line_of, status_of

if TYPE_CHECKING:
    from tests.fakes.kube import FakeKube

METHODS = {
    Verb.CREATE: ("POST", "application/json"),
    Verb.MERGE: ("PATCH", "application/merge-patch+json"),
    Verb.JSON_PATCH: ("PATCH", "application/json-patch+json"),
    Verb.REPLACE: ("PUT", "application/json"),
    Verb.DELETE: ("DELETE", "application/json"),
}
_TOO_MANY = Refused(429, "TooManyRequests", "too many requests, please try again later")
_CONFLICT = Refused(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
_EXPIRED = Refused(410, "Expired", "too old resource version")
_FENCED = Refused(403, "Forbidden", "ValidatingAdmissionPolicy 'sterna-fence' denied request: not the lease's holder")
_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class Faults:
    """Probabilities of faults, and ranges of delays in seconds."""

    lost_before: float = 0.0
    """The write does not arrive, and no reply comes."""
    lost_after: float = 0.0
    """The write is executed, and no reply comes."""
    conflict: float = 0.0
    """A patch or a replacement conflicts with another: rejected, not executed."""
    too_many: float = 0.0
    refused_ask: float = 0.0
    """`ask` fails, half of the time after the request was done."""
    expired: float = 0.0
    """With an event: the watch ends with a 410 in its stead."""
    broken: float = 0.0
    """With an event: the watch ends in silence before it."""
    duplicated: float = 0.0
    answer_seconds: tuple[float, float] = (0.002, 0.02)
    event_seconds: tuple[float, float] = (0.067, 0.264)
    """As seen on a real server."""


class _Watch:
    """One reflector's stream; lines arrive in order, each with its delay."""

    def __init__(self, client: FakeClient, reflector: Reflector, selection: Selection) -> None:
        self.client, self.reflector, self.selection = client, reflector, selection
        self.is_open = True
        self._last_at = 0.0

    def schedule(self, line: bytes) -> None:
        kube = self.client.kube
        self._last_at = max(self._last_at, kube.now + kube.luck.uniform(*kube.faults.event_seconds))
        kube.call_at(self._last_at, lambda: self._deliver(line))

    def _deliver(self, line: bytes) -> None:
        if not self.is_open:
            return
        kube, luck = self.client.kube, self.client.kube.luck
        if luck.random() < kube.faults.expired:
            line = error_line(_EXPIRED)
        elif luck.random() < kube.faults.broken:
            self.end()
            return
        elif luck.random() < kube.faults.duplicated:
            line += line
        self.client.tell(self.reflector.take_events(line))
        if self.reflector.wants_list:
            self.end()

    def end(self) -> None:
        self.is_open = False
        if self in self.client.watches:
            self.client.watches.remove(self)
        self.client.resume(self.reflector)


class FakeClient:
    """An `ApiServer`."""

    def __init__(self, kube: FakeKube, may_write: Callable[[], bool], identity: str = "") -> None:
        self.kube, self._may_write, self.identity = kube, may_write, identity
        self.last_error = ""
        self.watches: list[_Watch] = []
        self.sent: list[Write] = []
        """Every write that arrived, in order: what tests look at."""
        self._queue = WriteQueue()
        self._inbox: Inbox | None = None
        self._reflectors: dict[Resource, list[Reflector]] = {}
        self._is_closed = False
        self._pump_at = 0.0

    # What the operator calls.

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        self._inbox = inbox
        self.kube.store.listeners.append(self._note_event)
        for each in followed:
            reflector = Reflector(each)
            self._reflectors.setdefault(each.resource, []).append(reflector)
            self.resume(reflector)

    def send(self, writes: Sequence[Write]) -> None:
        for write in writes:
            replaced = self._queue.put(write, self.kube.now)
            if replaced is not None:
                self.tell([WriteResult(replaced, 409, SUPERSEDED, "A later write of the same slot took its place.")])
        self._pump()

    def ask(
        self,
        verb: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        content_type: str = "",
        timeout_seconds: float = 30.0,
    ) -> WriteResult:
        if self._is_closed:
            raise Retry("The connection to the API server is closed.")
        fails = self.kube.luck.random() < self.kube.faults.refused_ask
        if fails and self.kube.luck.random() < 0.5:
            raise Retry("The API server cannot be reached.")
        if self._is_fenced(verb, path):
            response = Response(403, encoded(status_of(_FENCED)))
        else:
            response = self.kube.handle(verb, path, query, body, content_type)
        if fails:
            raise Retry("The API server did not answer.")
        refusal = parse_rejection(response.body) if response.status >= 400 else None
        reason, message = refusal or ("", "")
        return WriteResult(NO_WRITE, response.status, reason, message, response.body)

    def _is_fenced(self, verb: str, path: str) -> bool:
        """The Lease itself and TokenReviews are not fenced."""
        is_free = verb == "GET" or "/leases" in path or "/tokenreviews" in path
        return not is_free and self.kube.is_fenced_out(self.identity)

    def close(self) -> None:
        self._is_closed = True
        self.watches.clear()
        if self._note_event in self.kube.store.listeners:
            self.kube.store.listeners.remove(self._note_event)

    # What a test does to it.

    def break_watches(self) -> None:
        """All of them end in silence; they come back by themselves."""
        for watch in list(self.watches):
            watch.end()

    def expire_watches(self) -> None:
        """Expire the version of every watch (410)."""
        for watch in list(self.watches):
            self.tell(watch.reflector.take_events(error_line(_EXPIRED)))
            watch.end()

    def bookmark(self) -> None:
        for watch in list(self.watches):
            watch.schedule(bookmark(watch.reflector.followed.resource, self.kube.store.revision))

    # Writes.

    def _pump(self) -> None:
        while not self._is_closed and (pending := self._queue.pop(self.kube.now)) is not None:
            self._carry(pending)
        due = self._queue.next_due
        if due is not None and due != self._pump_at:
            self._pump_at = due
            self.kube.call_at(due, self._pump)

    def _carry(self, pending: PendingWrite) -> None:
        write, luck, faults = pending.write, self.kube.luck, self.kube.faults
        if not self._may_write():
            self._answer(pending, WriteResult(write, 403, NOT_LEADER, "Another operator leads."))
            return
        under_way = luck.uniform(*faults.answer_seconds) / 2.0
        lost = luck.random()
        if lost < faults.lost_before:
            self.kube.call_in(_TIMEOUT_SECONDS, lambda: self._give_up(pending))
            return
        is_answered = lost >= faults.lost_before + faults.lost_after
        self.kube.call_in(under_way, lambda: self._arrive(pending, is_answered, under_way))

    def _arrive(self, pending: PendingWrite, is_answered: bool, under_way: float) -> None:
        """At the server; also of a client that has died since."""
        write = pending.write
        response = self._turned_away(write) or self._done(write)
        if is_answered:
            self.kube.call_in(under_way, lambda: self._judge(pending, response))
        else:
            self.kube.call_in(_TIMEOUT_SECONDS, lambda: self._give_up(pending))

    def _turned_away(self, write: Write) -> Response | None:
        luck, faults = self.kube.luck, self.kube.faults
        if self.kube.is_fenced_out(self.identity):
            return Response(403, encoded(status_of(_FENCED)))
        if luck.random() < faults.too_many:
            return Response(429, encoded(status_of(_TOO_MANY)))
        may_conflict = write.verb in (Verb.MERGE, Verb.JSON_PATCH, Verb.REPLACE)
        if may_conflict and luck.random() < faults.conflict:
            return Response(409, encoded(status_of(_CONFLICT)))
        return None

    def _done(self, write: Write) -> Response:
        method, content_type = METHODS[write.verb]
        is_new = write.verb is Verb.CREATE and not write.subresource
        path = write.resource.path(write.namespace, "" if is_new else write.name, write.subresource)
        self.sent.append(write)
        return self.kube.handle(method, path, "", write.body, content_type)

    def _judge(self, pending: PendingWrite, response: Response) -> None:
        if response.status < 300:
            self._answer(pending, WriteResult(pending.write, response.status, body=response.body))
            return
        refusal = parse_rejection(response.body)
        answer = WriteResult(pending.write, response.status, refusal.reason, refusal.message, response.body)
        not_before = self.kube.now + backoff_seconds(pending.tries - 1, self.kube.luck.random())
        is_patient = not_before <= pending.enqueued_at + RETRY_SECONDS
        if write_effect(response.status) is not WriteEffect.NONE or not is_patient:
            self._answer(pending, answer)
            return
        replaced = self._queue.retry(pending, not_before)
        if replaced is not None:
            self.tell([WriteResult(replaced, 409, SUPERSEDED, "A later write of the same slot took its place.")])
        self._pump()

    def _give_up(self, pending: PendingWrite) -> None:
        self._answer(pending, WriteResult(pending.write, 0, "NoReply", "The API server did not answer."))

    def _answer(self, pending: PendingWrite, answer: WriteResult) -> None:
        self._queue.finish(pending)
        if answer.is_done:
            for reflector in self._reflectors.get(answer.write.resource, ()):
                self.tell(reflector.note_written(answer.body))
        self.tell([answer])
        self._pump()

    def tell(self, news: Sequence[Delta | WriteResult]) -> None:
        if news and self._inbox is not None and not self._is_closed:
            self._inbox.put(*news)

    # Following.

    def resume(self, reflector: Reflector) -> None:
        """List or watch next, a moment from now."""
        seconds = self.kube.luck.uniform(*self.kube.faults.answer_seconds)
        self.kube.call_in(seconds, lambda: self._follow(reflector))

    def _follow(self, reflector: Reflector) -> None:
        if self._is_closed:
            return
        request = reflector.request()
        try:
            asked = self.kube.rest.request("GET", request.path, request.query)
            if request.is_watch:
                self._open(reflector, Selection.of(asked.target.namespace, asked.query), asked.query)
                return
            response = self.kube.handle("GET", request.path, request.query)
        except Refused as refused:
            response = Response(refused.status, encoded(status_of(refused)))
        if response.status == 200:
            self.tell(reflector.take_page(response.body))
            self.resume(reflector)
        else:
            self.tell(reflector.note_rejected(response.status, response.body))
            pause = backoff_seconds(3, self.kube.luck.random(), first=0.2)
            self.kube.call_in(pause, lambda: self._follow(reflector))

    def _open(self, reflector: Reflector, selection: Selection, query: dict[str, str]) -> None:
        watch = _Watch(self, reflector, selection)
        self.tell(reflector.note_watch_open())
        try:
            lines = self.kube.store.since(reflector.followed.resource, selection, int(query["resourceVersion"]))
        except Refused as refused:  # an event, as from a real server
            self.tell(reflector.take_events(error_line(refused)))
            self.resume(reflector)
            return
        self.watches.append(watch)
        for line in lines:
            watch.schedule(line)

    def _note_event(self, resource: Resource, event: Event) -> None:
        for watch in list(self.watches):
            if watch.reflector.followed.resource == resource:
                line = line_of(event, watch.selection)
                if line is not None:
                    watch.schedule(line)
