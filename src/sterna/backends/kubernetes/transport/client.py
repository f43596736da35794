"""The one module that talks to an API server: follows resources, carries out writes, asks.

Threads call it; inside is one asyncio loop on a thread of its own. What is remembered of objects is what `reflector.py`
remembers, which write goes next is what `sending.py` says; here is only how bytes travel.

An answer and the watch may tell of the same change, the watch up to a quarter of a second later. What a write answers
is laid over at once: the news comes as `SEEN` right before the answer, and the watch's echo is dropped.

It deliberately keeps no objects, retries no write that may have been done, and decides nothing.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

import sterna
from sterna.backends.kubernetes.api.envelopes import Refusal, refusal_of
from sterna.backends.kubernetes.api.resources import (
    NO_WRITE,
    NOT_LEADER,
    SUPERSEDED,
    UNREACHABLE,
    Delta,
    Followed,
    Inbox,
    Verb,
    Write,
    WriteResult,
)
from sterna.backends.kubernetes.transport.connection_pool import (
    Connections,
    NoReplyError,
    NotConnectedError,
    Outcome,
    Request,
    WithdrawnError,
    unreachable,
    words_of,
)
from sterna.backends.kubernetes.transport.credentials import RENEW_SECONDS, header_of, is_renewed, tls_of
from sterna.backends.kubernetes.transport.http_parser import Reply, Stream
from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.backends.kubernetes.transport.reflector import WATCH_SECONDS, Reflector
from sterna.backends.kubernetes.transport.wakeup_limiter import GatheringSelector
from sterna.backends.kubernetes.transport.write_queue import (
    IN_FLIGHT,
    PATIENCE_SECONDS,
    Fate,
    Outbox,
    Ticket,
    fate_of,
    pause_seconds,
)
from sterna.errors import Bug, Retry
from sterna.kinds.resource import Resource

RELIST_SECONDS = 12 * 3600.0
"""A watch that has lived so long is followed by a list: nothing that went amiss unseen stays so for ever."""

_JSON = "application/json"
_SENT_AS = {
    Verb.CREATE: ("POST", _JSON),
    Verb.MERGE: ("PATCH", "application/merge-patch+json"),
    Verb.JSON_PATCH: ("PATCH", "application/json-patch+json"),
    Verb.REPLACE: ("PUT", _JSON),
    Verb.DELETE: ("DELETE", _JSON),
}
_WRITTEN_BY = "fieldManager=sterna&fieldValidation=Ignore"
_QUERIES = {"POST": _WRITTEN_BY, "PUT": _WRITTEN_BY, "PATCH": _WRITTEN_BY}
_LIST_SECONDS = 120.0
_WATCH_SILENCE_SECONDS = 150.0
"""Bookmarks come every minute; a watch that is silent for longer may hang on a connection that is long dead."""
_LONGEST_PAUSE_SECONDS = 30.0
_SETTLED_SECONDS = 5.0
"""A watch that lived so long is no trouble when it ends."""
_CLOSE_SECONDS = 5.0
_NONE = Refusal("", "")

_T = TypeVar("_T")


class Client:
    """A server behind an `Access`; implements `ApiServer`."""

    def __init__(
        self,
        access: Access,
        may_write: Callable[[], bool] = lambda: True,
        in_flight: int = IN_FLIGHT,
        gather_seconds: float = 0.0,
    ) -> None:
        """`gather_seconds`: how long to let news gather while it comes thick and fast (`gathering.py`)."""
        self.access = access
        self.trouble = ""
        """Why the server cannot be reached, as a sentence; empty while it can. The inbox is woken when it changes."""
        self._may_write = may_write
        self._outbox = Outbox(in_flight)
        self._inbox: Inbox | None = None
        self._reflectors: dict[Resource, list[Reflector]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._untold: list[Delta | WriteResult] = []
        self._is_settling = False
        self._failure: BaseException | None = None
        self._is_closing = False
        self._authorization = header_of(access)
        self._connections = Connections(access.server, tls_of(access), access.server_name, access.proxy)
        self._show_ourselves()
        self._loop = asyncio.SelectorEventLoop(GatheringSelector(gather_seconds))
        self._loop.set_exception_handler(self._note_failed_callback)
        self._thread = threading.Thread(target=self._run, name="api-client", daemon=True)
        self._thread.start()
        self._wait_for(self._open(), _CLOSE_SECONDS)

    # What threads call.

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        if self._inbox is not None:
            raise Bug("a client follows once")
        self._inbox = inbox
        for each in followed:
            reflector = Reflector(each)
            self._reflectors.setdefault(reflector.followed.resource, []).append(reflector)
            self._loop.call_soon_threadsafe(self._spawn, self._follow(reflector))

    def send(self, writes: Sequence[Write]) -> None:
        if self._inbox is None:
            raise Bug("answers need an inbox: follow first")
        if self._failure is not None:
            raise Bug("the client's loop failed") from self._failure
        self._loop.call_soon_threadsafe(self._take, tuple(writes))

    def ask(
        self,
        verb: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        content_type: str = "",
        timeout_seconds: float = 30.0,
    ) -> WriteResult:
        if threading.current_thread() is self._thread:
            raise Bug("the client's own thread cannot wait for itself")
        if not self._thread.is_alive():
            raise Retry("The connection to the API server is closed.")
        return self._wait_for(self._ask(verb, path, body, query, content_type, timeout_seconds), timeout_seconds + 5.0)

    def close(self) -> None:
        """What is in flight may still be done; nobody will hear of it."""
        if self._thread.is_alive():
            with suppress(Retry):
                self._wait_for(self._shut(), _CLOSE_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)
        if not self._loop.is_running():
            self._loop.close()

    # The loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _wait_for(self, work: Coroutine[Any, Any, _T], seconds: float) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (TimeoutError, CancelledError):
            future.cancel()
            raise Retry(f"The API server at {self.access.server} did not answer in time.") from None

    async def _open(self) -> None:
        if is_renewed(self.access):
            self._spawn(self._renew())

    async def _shut(self) -> None:
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        await self._connections.shut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # what was aborted gets to close its socket

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Only a bug ends a task with an error: the next `send` tells of it."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note_bug(error)

    def _note_bug(self, error: BaseException) -> None:
        self._failure = error
        self._wake()

    def _note_failed_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something that the loop called has failed, which nobody else would hear of."""
        loop.default_exception_handler(context)
        if isinstance(error := context.get("exception"), Exception) and not isinstance(error, OSError):
            self._note_bug(error)

    async def _renew(self) -> None:
        """Tokens in files and those of login programs grow old."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                header = await asyncio.to_thread(header_of, self.access)
            except Retry as error:
                self._note_trouble(str(error))
                continue
            if header != self._authorization:
                self._authorization = header
                self._show_ourselves()

    # One request.

    async def _ask(
        self, verb: str, path: str, body: bytes, query: str, content_type: str, seconds: float
    ) -> WriteResult:
        request = Request(verb, path, query or _QUERIES.get(verb, ""), body, content_type or _JSON)
        for is_last in (verb != "GET", True):
            try:
                reply = await self._exchanged(request, seconds)
                break
            except NotConnectedError:
                raise Retry(self.trouble) from None
            except NoReplyError as error:
                if is_last:  # before: a kept connection may have been closed meanwhile, and this only reads
                    raise Retry(self._no_reply(error)) from None
        refusal = refusal_of(reply.body) if reply.status >= 400 else _NONE
        return WriteResult(NO_WRITE, reply.status, refusal.reason, refusal.message, reply.body)

    async def _exchanged(self, request: Request, seconds: float) -> Reply:
        try:
            reply = await self._connections.exchange(request, seconds)
        except NotConnectedError as error:
            self._note_unreachable(error)
            raise
        self._note_trouble("")
        return reply

    def _note_unreachable(self, error: NotConnectedError) -> None:
        self._note_trouble(unreachable(self.access.server, error.cause))

    def _no_reply(self, error: NoReplyError) -> str:
        return f"The API server at {self.access.server} did not answer ({words_of(error)})."

    def _show_ourselves(self) -> None:
        """What every request says of us, from now on."""
        headers = {"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": f"sterna/{sterna.__version__}"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        self._connections.show(headers)

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._wake()

    def _wake(self) -> None:
        if self._inbox is not None:
            self._inbox.wake()

    # Writes.

    def _take(self, writes: Sequence[Write]) -> None:
        now = self._loop.time()
        replaced = [old for write in writes if (old := self._outbox.put(write, now)) is not None]
        self._tell([_superseded(write) for write in replaced])
        self._settle_soon()

    def _settle_soon(self) -> None:
        """Once all that has come is read: replies come in handfuls, and whoever hears of them is woken up once. A
        connection that the server has closed meanwhile gets to know it first."""
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Tell what there is to tell, and send what may go now."""
        self._is_settling = False
        news, self._untold = self._untold, []
        if news and self._inbox is not None:
            self._inbox.put(*news)
        self._pump()

    def _pump(self) -> None:
        """Send what may go; come back when something that was turned away may try again."""
        now = self._loop.time()
        while not self._is_closing and (ticket := self._outbox.next(now)) is not None:
            self._carry(ticket)
        due = self._outbox.next_due
        if self._timer is not None and (due is None or self._timer.when() > due):
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._pump_in_time)

    def _pump_in_time(self) -> None:
        self._timer = None
        self._pump()

    def _carry(self, ticket: Ticket) -> None:
        """One try of one write."""
        write = ticket.write
        if not self._may_write():
            self._answer(ticket, _not_leader(write))
            return
        method, content_type = _SENT_AS[write.verb]
        is_new = write.verb is Verb.CREATE and not write.subresource
        path = write.resource.path(write.namespace, "" if is_new else write.name, write.subresource)
        request = Request(method, path, _QUERIES.get(method, ""), write.body, content_type)
        self._connections.send(request, partial(self._carried, ticket), self._may_write)

    def _carried(self, ticket: Ticket, outcome: Outcome) -> None:
        """A bug in here must not end as the end of a connection."""
        try:
            if isinstance(outcome, Reply):
                self._note_trouble("")
                self._judge(ticket, outcome)
            elif isinstance(outcome, NotConnectedError):
                self._note_unreachable(outcome)
                self._try_again(ticket, WriteResult(ticket.write, 503, UNREACHABLE, self.trouble))
            elif isinstance(outcome, WithdrawnError):
                self._answer(ticket, _not_leader(ticket.write))
            else:
                self._answer(ticket, WriteResult(ticket.write, 0, "NoReply", self._no_reply(outcome)))
            self._settle_soon()
        except Exception as error:
            self._note_bug(error)

    def _judge(self, ticket: Ticket, reply: Reply) -> None:
        write = ticket.write
        if reply.status < 300:
            self._answer(ticket, WriteResult(write, reply.status, body=reply.body))
            return
        refusal = refusal_of(reply.body)
        answer = WriteResult(write, reply.status, refusal.reason, refusal.message, reply.body)
        fate = fate_of(reply.status)
        if fate is Fate.TURNED_AWAY:
            self._try_again(ticket, answer, reply.retry_after)
        else:
            self._answer(ticket, answer._replace(status=0) if fate is Fate.UNKNOWN else answer)

    def _try_again(self, ticket: Ticket, answer: WriteResult, retry_after: float = 0.0) -> None:
        now = self._loop.time()
        not_before = now + pause_seconds(ticket.tries - 1, random.random(), retry_after)
        if not_before > ticket.asked_at + PATIENCE_SECONDS:
            self._answer(ticket, answer)
            return
        replaced = self._outbox.again(ticket, not_before)
        if replaced is not None:
            self._tell([_superseded(replaced)])

    def _answer(self, ticket: Ticket, answer: WriteResult) -> None:
        self._outbox.done(ticket)
        news: list[Delta | WriteResult] = []
        if answer.is_done:
            for reflector in self._reflectors.get(answer.write.resource, ()):
                news += reflector.note_written(answer.body)
        news.append(answer)
        self._tell(news)

    def _tell(self, news: Sequence[Delta | WriteResult]) -> None:
        if news:
            self._untold += news
            self._settle_soon()

    # Following.

    async def _follow(self, reflector: Reflector) -> None:
        """List, watch, and again, for as long as we live."""
        failures, listed_at = 0, self._loop.time()
        while not self._is_closing:
            began = self._loop.time()
            if began - listed_at > RELIST_SECONDS:
                reflector.list_again()
            if reflector.wants_list:
                listed_at = began
            if await self._follow_once(reflector):
                failures = 0
            else:
                failures += 1
                longest = _LONGEST_PAUSE_SECONDS
                await asyncio.sleep(pause_seconds(failures - 1, random.random(), first=0.2, longest=longest))

    async def _follow_once(self, reflector: Reflector) -> bool:
        """One page, or one watch until it ends; whether there is no reason to wait before the next."""
        asked = reflector.request(random.randint(WATCH_SECONDS // 2, WATCH_SECONDS))
        request = Request("GET", asked.path, asked.query)
        try:
            if asked.is_watch:
                return await self._watch(reflector, request)
            return self._take_page(reflector, await self._exchanged(request, _LIST_SECONDS))
        except (NotConnectedError, NoReplyError):
            return False

    def _take_page(self, reflector: Reflector, reply: Reply) -> bool:
        if reply.status != 200:
            self._tell(reflector.refused(reply.status, reply.body))
            return False
        try:
            self._tell(reflector.page(reply.body))
        except msgspec.DecodeError as error:
            reflector.list_again()
            self._note_trouble(f"What answers at {self.access.server} is no API server ({error}); check the address.")
            return False
        return True

    async def _watch(self, reflector: Reflector, request: Request) -> bool:
        has_told, began = False, self._loop.time()

        def opened() -> None:
            self._note_trouble("")
            self._tell(reflector.opened())

        def take(piece: bytes) -> bool:
            nonlocal has_told
            try:
                deltas = reflector.events(piece)
            except Exception as error:  # a bug, which must not end as the end of a connection
                self._note_bug(error)
                return False
            has_told = has_told or bool(deltas)
            self._tell(deltas)
            return not reflector.wants_list

        try:
            reply = await self._connections.follow(request, Stream(opened, take), _WATCH_SILENCE_SECONDS)
        except NotConnectedError as error:
            self._note_unreachable(error)
            return False
        except NoReplyError:  # it broke off; the next one says whether that is trouble
            return self._loop.time() - began > _SETTLED_SECONDS
        if reply.status != 200:
            self._note_trouble("")
            self._tell(reflector.refused(reply.status, reply.body))
            return False
        return has_told or self._loop.time() - began > _SETTLED_SECONDS


def _not_leader(write: Write) -> WriteResult:
    return WriteResult(write, 403, NOT_LEADER, "Another operator leads.")


def _superseded(write: Write) -> WriteResult:
    return WriteResult(write, 409, SUPERSEDED, "A later write of the same slot took its place.")
