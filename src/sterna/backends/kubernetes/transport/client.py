"""API server client: watches resources, executes the write queue, answers single requests.

Any thread may call it; all I/O runs in one asyncio loop on a thread of its own. `reflector.py` tracks objects and
`write_queue.py` orders writes, both without I/O; `http_session.py` moves the bytes.

The reply to a write and the watch may report the same change, the watch up to 250 ms later. The object in the reply is
delivered at once, as `SEEN` directly before the `WriteResult`, and the watch's event for it is dropped.

The client stores no objects, never repeats a write that may have taken effect, and makes no scheduling decision.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from sterna.backends.kubernetes.api.envelopes import Rejection, parse_rejection
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
from sterna.backends.kubernetes.transport.credentials import RENEW_SECONDS, authorization_header, is_renewable
from sterna.backends.kubernetes.transport.http_session import (
    HttpReply,
    HttpRequest,
    HttpSession,
    NoReplyError,
    NotConnectedError,
    StreamHandler,
    WithdrawnError,
    describe,
    describe_unreachable,
)
from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.backends.kubernetes.transport.reflector import WATCH_SECONDS, Reflector
from sterna.backends.kubernetes.transport.write_queue import (
    MAX_IN_FLIGHT,
    RETRY_SECONDS,
    PendingWrite,
    WriteEffect,
    WriteQueue,
    backoff_seconds,
    write_effect,
)
from sterna.errors import Bug, Retry
from sterna.kinds.resource import Resource

RELIST_SECONDS = 12 * 3600.0
"""Maximum age of a list before a new one is read, so that a missed event is noticed in the end."""

_JSON = "application/json"
_METHODS = {
    Verb.CREATE: ("POST", _JSON),
    Verb.MERGE: ("PATCH", "application/merge-patch+json"),
    Verb.JSON_PATCH: ("PATCH", "application/json-patch+json"),
    Verb.REPLACE: ("PUT", _JSON),
    Verb.DELETE: ("DELETE", _JSON),
}
_WRITE_QUERY = "fieldManager=sterna&fieldValidation=Ignore"
_QUERIES = {"POST": _WRITE_QUERY, "PUT": _WRITE_QUERY, "PATCH": _WRITE_QUERY}
_LIST_SECONDS = 120.0
_WRITE_SECONDS, _WRITE_SILENCE_SECONDS = 60.0, 15.0
"""Timeouts of a write: in total, and without any data from the server."""
_WATCH_SILENCE_SECONDS = 150.0
"""Timeout of a watch without data. The server sends a bookmark every minute, so the connection is dead by then."""
_MAX_BACKOFF_SECONDS = 30.0
_STABLE_SECONDS = 5.0
"""A watch that lasted this long is reopened without back-off."""
_CLOSE_SECONDS = 5.0
_NO_REFUSAL = Rejection("", "")

_T = TypeVar("_T")


class Client:
    """Connection to the server of an `Access`; implements `ApiServer`."""

    def __init__(
        self, access: Access, may_write: Callable[[], bool] = lambda: True, in_flight: int = MAX_IN_FLIGHT
    ) -> None:
        self.access = access
        self.last_error = ""
        """Why the server cannot be reached, as a sentence; empty while it can. A change wakes the inbox."""
        self._may_write = may_write
        self._queue = WriteQueue(in_flight)
        self._inbox: Inbox | None = None
        self._reflectors: dict[Resource, list[Reflector]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._undelivered: list[Delta | WriteResult] = []
        self._is_flush_scheduled = False
        self._failure: BaseException | None = None
        self._is_closing = False
        self._http = HttpSession(access)
        self._http.authorize(authorization_header(access))
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._loop.set_exception_handler(self._handle_callback_error)
        self._thread = threading.Thread(target=self._run, name="api-client", daemon=True)
        self._thread.start()
        self._wait_for(self._open(), _CLOSE_SECONDS)

    # Called by any thread.

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
        self._loop.call_soon_threadsafe(self._enqueue, tuple(writes))

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
        """Close all connections. Writes in flight may still take effect; their results are not delivered."""
        if self._thread.is_alive():
            with suppress(Retry):
                self._wait_for(self._shut_down(), _CLOSE_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)
        if not self._loop.is_running():
            self._loop.close()

    # The event loop.

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
        await self._http.open()
        if is_renewable(self.access):
            self._spawn(self._renew_credentials())

    async def _shut_down(self) -> None:
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()
        await self._loop.shutdown_default_executor()
        while len(self._selector.get_map()) > 1:  # a closing transport still writes; one entry is the loop's own
            await asyncio.sleep(0.01)
        for _ in range(3):
            await asyncio.sleep(0)  # closed transports close their sockets

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        """Only a bug ends a task with an error; the next `send` raises it."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note_bug(error)

    def _note_bug(self, error: BaseException) -> None:
        self._failure = error
        self._wake()

    def _handle_callback_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep an error of a loop callback, which has no caller to raise it to."""
        loop.default_exception_handler(context)
        if isinstance(error := context.get("exception"), Exception) and not isinstance(error, OSError):
            self._note_bug(error)

    async def _renew_credentials(self) -> None:
        """Reread the token file, or rerun the login program, before the token expires."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                self._http.authorize(await asyncio.to_thread(authorization_header, self.access))
            except Retry as error:
                self._note_error(str(error))

    # Single requests.

    async def _ask(
        self, verb: str, path: str, body: bytes, query: str, content_type: str, seconds: float
    ) -> WriteResult:
        request = HttpRequest(verb, path, query or _QUERIES.get(verb, ""), body, content_type or _JSON)
        for is_last in (verb != "GET", True):
            try:
                reply = await self._exchange(request, seconds)
                break
            except NotConnectedError:
                raise Retry(self.last_error) from None
            except NoReplyError as error:
                if is_last:  # a GET is repeated once: the server may have just closed the idle connection
                    raise Retry(self._no_reply(error)) from None
        refusal = parse_rejection(reply.body) if reply.status >= 400 else _NO_REFUSAL
        return WriteResult(NO_WRITE, reply.status, refusal.reason, refusal.message, reply.body)

    async def _exchange(self, request: HttpRequest, seconds: float) -> HttpReply:
        try:
            reply = await self._http.exchange(request, seconds)
        except NotConnectedError as error:
            self._note_unreachable(error)
            raise
        self._note_error("")
        return reply

    def _note_unreachable(self, error: NotConnectedError) -> None:
        self._note_error(describe_unreachable(self.access.server, error.cause))

    def _no_reply(self, error: NoReplyError) -> str:
        return f"The API server at {self.access.server} did not answer ({describe(error)})."

    def _note_error(self, failure: str) -> None:
        if failure != self.last_error:
            self.last_error = failure
            self._wake()

    def _wake(self) -> None:
        if self._inbox is not None:
            self._inbox.wake()

    # Writes.

    def _enqueue(self, writes: Sequence[Write]) -> None:
        now = self._loop.time()
        replaced = [old for write in writes if (old := self._queue.put(write, now)) is not None]
        self._deliver([_superseded_result(write) for write in replaced])
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        """Flush once all data that has arrived is read, so that a batch of replies wakes the consumer once."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Deliver what has accumulated and start the writes that may go out now."""
        self._is_flush_scheduled = False
        news, self._undelivered = self._undelivered, []
        if news and self._inbox is not None:
            self._inbox.put(*news)
        self._start_writes()

    def _start_writes(self) -> None:
        """Start writes up to the limit in flight; set a timer for the first write that waits for its back-off."""
        now = self._loop.time()
        while not self._is_closing and (pending := self._queue.pop(now)) is not None:
            self._spawn(self._write(pending))
        due = self._queue.next_due
        if self._timer is not None and (due is None or self._timer.when() > due):
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._handle_timer)

    def _handle_timer(self) -> None:
        self._timer = None
        self._start_writes()

    async def _write(self, pending: PendingWrite) -> None:
        """One attempt of one write."""
        write = pending.write
        method, content_type = _METHODS[write.verb]
        is_new = write.verb is Verb.CREATE and not write.subresource
        path = write.resource.path(write.namespace, "" if is_new else write.name, write.subresource)
        request = HttpRequest(method, path, _QUERIES.get(method, ""), write.body, content_type)
        try:
            if not self._may_write():
                raise WithdrawnError
            reply = await self._http.exchange(request, _WRITE_SECONDS, _WRITE_SILENCE_SECONDS, self._may_write)
        except WithdrawnError:
            self._finish(pending, WriteResult(write, 403, NOT_LEADER, "Another operator leads."))
        except NotConnectedError as error:
            self._note_unreachable(error)
            self._retry(pending, WriteResult(write, 503, UNREACHABLE, self.last_error))
        except NoReplyError as error:
            self._finish(pending, WriteResult(write, 0, "NoReply", self._no_reply(error)))
        else:
            self._note_error("")
            self._process_reply(pending, reply)
        self._schedule_flush()

    def _process_reply(self, pending: PendingWrite, reply: HttpReply) -> None:
        write = pending.write
        if reply.status < 300:
            self._finish(pending, WriteResult(write, reply.status, body=reply.body))
            return
        refusal = parse_rejection(reply.body)
        result = WriteResult(write, reply.status, refusal.reason, refusal.message, reply.body)
        effect = write_effect(reply.status)
        if effect is WriteEffect.NONE:
            self._retry(pending, result, reply.retry_after)
        else:
            self._finish(pending, result._replace(status=0) if effect is WriteEffect.UNKNOWN else result)

    def _retry(self, pending: PendingWrite, result: WriteResult, retry_after: float = 0.0) -> None:
        now = self._loop.time()
        not_before = now + backoff_seconds(pending.tries - 1, random.random(), retry_after)
        if not_before > pending.enqueued_at + RETRY_SECONDS:
            self._finish(pending, result)
            return
        replaced = self._queue.retry(pending, not_before)
        if replaced is not None:
            self._deliver([_superseded_result(replaced)])

    def _finish(self, pending: PendingWrite, result: WriteResult) -> None:
        self._queue.finish(pending)
        news: list[Delta | WriteResult] = []
        if result.is_done:
            for reflector in self._reflectors.get(result.write.resource, ()):
                news += reflector.note_written(result.body)
        news.append(result)
        self._deliver(news)

    def _deliver(self, news: Sequence[Delta | WriteResult]) -> None:
        if news:
            self._undelivered += news
            self._schedule_flush()

    # Lists and watches.

    async def _follow(self, reflector: Reflector) -> None:
        """List and watch until the client closes."""
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
                pause = backoff_seconds(failures - 1, random.random(), first=0.2, longest=_MAX_BACKOFF_SECONDS)
                await asyncio.sleep(pause)

    async def _follow_once(self, reflector: Reflector) -> bool:
        """Read one page, or one watch until it ends; return False if the next attempt needs a back-off."""
        wanted = reflector.request(random.randint(WATCH_SECONDS // 2, WATCH_SECONDS))
        request = HttpRequest("GET", wanted.path, wanted.query)
        try:
            if wanted.is_watch:
                return await self._watch(reflector, request)
            return self._take_page(reflector, await self._exchange(request, _LIST_SECONDS))
        except (NotConnectedError, NoReplyError):
            return False

    def _take_page(self, reflector: Reflector, reply: HttpReply) -> bool:
        if reply.status != 200:
            self._deliver(reflector.note_rejected(reply.status, reply.body))
            return False
        try:
            self._deliver(reflector.take_page(reply.body))
        except msgspec.DecodeError as error:
            reflector.list_again()
            self._note_error(f"What answers at {self.access.server} is no API server ({error}); check the address.")
            return False
        return True

    async def _watch(self, reflector: Reflector, request: HttpRequest) -> bool:
        has_events, began = False, self._loop.time()

        def on_open() -> None:
            self._note_error("")
            self._deliver(reflector.note_watch_open())

        def on_data(data: bytes) -> bool:
            nonlocal has_events
            deltas = reflector.take_events(data)
            has_events = has_events or bool(deltas)
            self._deliver(deltas)
            return not reflector.wants_list

        try:
            reply = await self._http.stream(request, StreamHandler(on_open, on_data), _WATCH_SILENCE_SECONDS)
        except NotConnectedError as error:
            self._note_unreachable(error)
            return False
        except NoReplyError:  # the watch broke off; if the server is gone, the next request finds out
            return self._loop.time() - began > _STABLE_SECONDS
        if reply.status != 200:
            self._note_error("")
            self._deliver(reflector.note_rejected(reply.status, reply.body))
            return False
        return has_events or self._loop.time() - began > _STABLE_SECONDS


def _superseded_result(write: Write) -> WriteResult:
    return WriteResult(write, 409, SUPERSEDED, "A later write of the same slot took its place.")
