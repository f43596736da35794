"""`/api/v1/watch`: what changes, as server-sent events, for `--watch` and for the page.

One thread waits for changes and wakes the loop; the cluster is asked once for all who watch, and each is sent only what
is new to it: `jobs` (changed ones, and names that are gone), `nodes`, `rules`, `events`. Nobody watching costs nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from sterna.api.responses import asked
from sterna.service.views import ClusterService

router = APIRouter(prefix="/api/v1", tags=["cluster"])

_PAUSE_SECONDS = 0.25
"""Between two updates; changes in between come together."""
_SIGN_OF_LIFE_SECONDS = 15.0
_LULL_SECONDS = 0.05
"""Between two changes that the loop hears of."""
_FIRST_EVENTS = 100
_AT_ONCE = 10_000
KINDS = ("jobs", "nodes", "rules", "events")


@dataclass(frozen=True)
class View:
    """Everything that watchers see, encoded once."""

    number: int
    jobs: dict[str, bytes]
    nodes: bytes
    rules: bytes


class Watching:
    """Wakes all who watch, and looks once for all of them."""

    def __init__(self, verbs: ClusterService) -> None:
        self._verbs = verbs
        self._number = 1
        self._view: View | None = None
        self._looking = asyncio.Lock()
        self._woken = asyncio.Event()
        self._newest = 0
        self._is_closing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wait for changes, in a thread that ends with the process."""
        threading.Thread(target=self._wait, args=(loop,), name="sterna-watching", daemon=True).start()

    def close(self) -> None:
        """End every stream; called on the loop."""
        self._is_closing = True
        self._woken.set()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in self._verbs.changes(0):
            if self._is_closing or loop.is_closed():
                return
            loop.call_soon_threadsafe(self._changed)
            time.sleep(_LULL_SECONDS)  # in a flood of changes the loop has better things to do than to hear of each

    def _changed(self) -> None:
        self._number += 1
        self._woken.set()
        self._woken = asyncio.Event()

    async def _latest(self) -> View:
        async with self._looking:
            if self._view is None or self._view.number != self._number:
                number = self._number
                self._view = await asked(self._look, number)
            return self._view

    def _look(self, number: int) -> View:
        verbs = self._verbs
        jobs = {job.name: msgspec.json.encode(job) for job in verbs.jobs()}
        return View(number, jobs, msgspec.json.encode(verbs.nodes()), msgspec.json.encode(verbs.rules()))

    def _before_the_last_few(self, job: str) -> int:
        """The number after which the last few events come: those are told to whoever begins to watch."""
        newest = 0 if job else self._newest
        while events := self._verbs.events(job, newest, _AT_ONCE):
            newest = events[-1].number
        if not job:
            self._newest = newest
        return max(0, newest - _FIRST_EVENTS)

    async def stream(self, kinds: frozenset[str], job: str) -> AsyncIterator[bytes]:
        """Everything once, then what changes, until nobody listens."""
        sent = _Sent(kinds, job)
        last = await asked(self._before_the_last_few, job)
        while not self._is_closing:
            woken = self._woken
            for part in sent.news(await self._latest()):
                yield part
            if "events" in kinds:
                events = await asked(self._verbs.events, job, last)
                if events:
                    last = events[-1].number
                    yield _message("events", msgspec.json.encode(events))
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await asyncio.wait_for(woken.wait(), _SIGN_OF_LIFE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"


class _Sent:
    """What one watcher knows already."""

    def __init__(self, kinds: frozenset[str], job: str) -> None:
        self._kinds, self._job = kinds, job
        self._jobs: dict[str, bytes] = {}
        self._others: dict[str, bytes] = {}
        self._is_first = True

    def news(self, view: View) -> list[bytes]:
        parts = []
        if "jobs" in self._kinds:
            jobs = view.jobs if not self._job else {self._job: view.jobs[self._job]} if self._job in view.jobs else {}
            changed = [data for name, data in jobs.items() if self._jobs.get(name) != data]
            gone = [name for name in self._jobs if name not in jobs]
            self._jobs = jobs
            if changed or gone or self._is_first:
                data = b'{"changed":[' + b",".join(changed) + b'],"gone":' + msgspec.json.encode(gone) + b"}"
                parts.append(_message("jobs", data))
        for kind, data in (("nodes", view.nodes), ("rules", view.rules)):
            if kind in self._kinds and self._others.get(kind) != data:
                self._others[kind] = data
                parts.append(_message(kind, data))
        self._is_first = False
        return parts


def _message(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


@router.get("/watch", response_class=StreamingResponse)
async def watch(
    request: Request,
    kind: Annotated[list[str] | None, Query(description="Only these of: jobs, nodes, rules, events.")] = None,
    job: Annotated[str, Query(description="Only what concerns this job.")] = "",
) -> StreamingResponse:
    """Everything once, then what changes."""
    watching: Watching = request.app.state.watching
    kinds = frozenset(kind or KINDS)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(watching.stream(kinds, job), media_type="text/event-stream", headers=headers)
