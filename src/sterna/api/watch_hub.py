"""`WatchHub`: one `ClusterService.watch` for all clients that watch a cluster.

A thread iterates the watch while there are clients; each client is sent what it does not know yet.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool

from sterna.errors import SternaError
from sterna.service.cluster_service import ClusterService
from sterna.service.updates import FIRST_EVENTS, EventsUpdate, JobsUpdate, NodesUpdate, Update
from sterna.service.views import EventView

_SESSION_SECONDS = 60.0
"""Length of one watch; it is repeated while there are clients."""
_KEEP_ALIVE_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_MOST_EVENTS = 10_000
_log = logging.getLogger(__name__)


class WatchHub:
    """Streams the changes of one cluster. Lives on one event loop; its thread only reads the watch."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._jobs: dict[str, tuple[str, bytes]] | None = None
        """Name and JSON of every job, by identity; None: not listed yet."""
        self._others: dict[str, bytes] = {}
        self._events: deque[EventView] = deque(maxlen=_MOST_EVENTS)
        self._changed = asyncio.Event()
        self._clients = 0
        self._is_reading = self._is_closing = False

    def close(self) -> None:
        """End every stream; called on the event loop."""
        self._is_closing = True
        self._changed.set()

    async def stream(self, kinds: frozenset[str], job: str) -> AsyncIterator[bytes]:
        """Yield server-sent events: everything once, then what changes, until the client or the server ends."""
        self._clients += 1
        try:
            async for message in self._messages(kinds, job):
                yield message
        finally:
            self._clients -= 1

    async def _messages(self, kinds: frozenset[str], job: str) -> AsyncIterator[bytes]:
        client = _Client(kinds, job)
        events = await run_in_threadpool(self._service.events, job, 0, FIRST_EVENTS) if "events" in kinds else []
        last_event = events[-1].number if events else 0
        self._start_reading()
        while not self._is_closing:
            changed = self._changed
            if self._jobs is not None and len(self._others) == 2:
                for message in client.messages(self._jobs, self._others):
                    yield message
                new = [event for event in self._events if event.number > last_event and job in ("", event.job)]
                last_event = new[-1].number if new else last_event
                if "events" in kinds and (events or new):
                    yield _message("events", msgspec.json.encode([*events, *new]))
                events = []
            try:
                await asyncio.wait_for(changed.wait(), _KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                self._start_reading()

    # The watch.

    def _start_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            arguments = (asyncio.get_running_loop(),)
            threading.Thread(target=self._read, args=arguments, name="sterna-watch", daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass updates to the loop while there are clients; on failure, retry."""
        while self._clients and not self._is_closing:
            is_first = True
            try:
                for update in self._service.watch(until=time.monotonic() + _SESSION_SECONDS):
                    if self._is_closing or loop.is_closed():
                        return
                    loop.call_soon_threadsafe(self._apply, update, is_first)
                    is_first = is_first and not isinstance(update, JobsUpdate)
            except SternaError as error:
                _log.warning("The watch of the cluster failed; will retry: %s", error)
                time.sleep(_RETRY_SECONDS)
            except RuntimeError:
                return  # the loop was closed
            if is_first:
                time.sleep(_RETRY_SECONDS)  # the cluster ended
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._stop_reading)

    def _stop_reading(self) -> None:
        self._is_reading = False
        if self._clients and not self._is_closing:
            self._start_reading()  # a client came while the thread ended

    def _apply(self, update: Update, is_first: bool) -> None:
        if isinstance(update, JobsUpdate):
            jobs = {} if is_first or self._jobs is None else self._jobs
            for identity in update.gone:
                jobs.pop(identity, None)
            jobs.update((job.identity, (job.name, msgspec.json.encode(job))) for job in update.changed)
            self._jobs = jobs
        elif isinstance(update, EventsUpdate):
            last = self._events[-1].number if self._events else 0
            self._events.extend(event for event in update.events if event.number > last)
        elif isinstance(update, NodesUpdate):
            self._others["nodes"] = msgspec.json.encode(update.nodes)
        else:
            self._others["rules"] = msgspec.json.encode(update.rules)
        self._changed.set()
        self._changed = asyncio.Event()


class _Client:
    """The values that one client knows."""

    def __init__(self, kinds: frozenset[str], job: str) -> None:
        self._kinds, self._job = kinds, job
        self._jobs: dict[str, bytes] | None = None
        self._others: dict[str, bytes] = {}

    def messages(self, jobs: dict[str, tuple[str, bytes]], others: dict[str, bytes]) -> list[bytes]:
        """Return messages about what differs from what was sent before."""
        messages = []
        if "jobs" in self._kinds:
            current = {identity: data for identity, (name, data) in jobs.items() if self._job in ("", name)}
            before = self._jobs or {}
            changed = [data for identity, data in current.items() if before.get(identity) != data]
            gone = [identity for identity in before if identity not in current]
            if changed or gone or self._jobs is None:
                data = b'{"changed":[' + b",".join(changed) + b'],"gone":' + msgspec.json.encode(gone) + b"}"
                messages.append(_message("jobs", data))
            self._jobs = current
        for kind, data in others.items():
            if kind in self._kinds and self._others.get(kind) != data:
                self._others[kind] = data
                messages.append(_message(kind, data))
        return messages


def _message(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
