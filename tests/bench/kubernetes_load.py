"""Load on a real API server for measurements: many objects created at once, and the time at which each was ready.

Independent of the operator's own client. Bodies are encoded before the clock starts; the moments are this process's,
from watches that were open before the first request went out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.kubernetes.api import login_of

IN_FLIGHT = 32
OPEN_SECONDS = 10.0
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/sterna.dev/v1alpha1/namespaces/default/trainingjobs"
RUNNING_PODS = f"{PODS}?fieldSelector=status.phase%3DRunning"


class Seen(msgspec.Struct):
    """An object, as far as measurements look at it."""

    class Meta(msgspec.Struct, rename="camel"):
        name: str = ""
        resource_version: str = ""

    class Status(msgspec.Struct):
        phase: str = ""
        reason: str = ""

    metadata: Meta
    status: Status = msgspec.field(default_factory=Status)


class _Event(msgspec.Struct):
    type: str
    object: Seen


class _Listing(msgspec.Struct):
    metadata: Seen.Meta
    items: list[Seen] = []


@dataclass
class Sightings:
    """Time at which each object first met a condition, by the clock of this process."""

    fulfils: Callable[[Seen], bool]
    wanted: int
    at: dict[str, float] = field(default_factory=dict)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, seen: Seen) -> None:
        name = seen.metadata.name
        if name not in self.at and self.fulfils(seen):
            self.at[name] = time.perf_counter()
            if len(self.at) >= self.wanted:
                self.is_complete.set()

    @property
    def last(self) -> float:
        return max(self.at.values())


class Load:
    """A few dozen connections to one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._tasks: list[asyncio.Task[None]] = []

    async def create(self, path: str, bodies: Sequence[bytes], in_flight: int = IN_FLIGHT) -> None:
        """Send all requests, `at_once` at a time."""
        waiting = iter(bodies)

        async def one_after_the_other() -> None:
            for body in waiting:
                await self.post(path, body)

        await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))

    async def post(self, path: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(path, data=body, headers=headers) as answer:
            text = await answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{path}: {answer.status} {text.decode(errors='replace')[:300]}")

    async def watch(self, path: str, *sightings: Sightings) -> None:
        """Everything there is and everything that happens from now on; returns when the watch is open."""
        opened = asyncio.Event()
        self._tasks.append(asyncio.create_task(self._follow(path, sightings, opened)))
        await self._until(opened, OPEN_SECONDS)

    async def all_seen(self, sightings: Sightings, patience_seconds: float) -> None:
        if sightings.wanted:
            await self._until(sightings.is_complete, patience_seconds)

    async def _until(self, event: asyncio.Event, patience_seconds: float) -> None:
        """Raise if a watch has failed, because no condition would be seen any more."""
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait([waiting, *self._tasks], timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
            if not event.is_set():
                raise RuntimeError(f"not everything was seen within {patience_seconds:g} s")
        finally:
            waiting.cancel()

    async def _follow(self, path: str, sightings: Sequence[Sightings], opened: asyncio.Event) -> None:
        """List and watch, again and again: a busy server ends watches that it finds too slow."""
        mark = "&" if "?" in path else "?"
        decode = msgspec.json.Decoder(_Event).decode
        while True:
            async with self._session.get(path) as answer:
                answer.raise_for_status()
                listing = msgspec.json.decode(await answer.read(), type=_Listing)
            for seen in listing.items:
                _take(seen, sightings)
            url = f"{path}{mark}watch=1&allowWatchBookmarks=false&resourceVersion={listing.metadata.resource_version}"
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                answer.raise_for_status()
                opened.set()
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for event in map(decode, lines):
                        if event.type in ("ADDED", "MODIFIED"):
                            _take(event.object, sightings)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _take(seen: Seen, sightings: Sequence[Sightings]) -> None:
    for each in sightings:
        each.take(seen)


@asynccontextmanager
async def load_on(kubeconfig: Path) -> AsyncIterator[Load]:
    login = login_of(kubeconfig)
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT + 8, ssl=login.context)
    async with aiohttp.ClientSession(f"https://{login.host}:{login.port}", connector=connector) as session:
        load = Load(session)
        try:
            yield load
        finally:
            load.close()


@dataclass(frozen=True)
class BareLoop:
    """Measure the peer: a loop that creates the pods with their nodes set."""

    created_seconds: float
    running_seconds: float


def bare_loop(kubeconfig: Path, template: dict[str, Any], count: int, nodes: int, patience_seconds: float) -> BareLoop:
    """Until all pods have been created, and until fake kubelets have taken all of them to Running."""
    bodies = [pod_body(template, number, f"node-{number % nodes:04}") for number in range(count)]

    async def whole() -> BareLoop:
        async with load_on(kubeconfig) as load:
            running = Sightings(lambda seen: seen.status.phase == "Running", count)
            await load.watch(RUNNING_PODS, running)
            began = time.perf_counter()
            await load.create(PODS, bodies)
            created = time.perf_counter()
            await load.all_seen(running, patience_seconds)
            return BareLoop(created - began, running.last - began)

    return asyncio.run(whole())


@dataclass(frozen=True)
class Burst:
    """Return times since the first submission; those of verdicts since the submission of their own job."""

    submitted_seconds: float
    pods_seconds: float
    statuses_seconds: float
    verdict_seconds: list[float]


def burst(
    kubeconfig: Path,
    jobs: Sequence[bytes],
    hopeless: Sequence[bytes],
    pods: int,
    patience_seconds: float,
    prefix: str = "job-",
) -> Burst:
    """Submit all jobs as fast as the server takes them; in between, spread over the time that takes, jobs that can
    never run, whose owners want to hear so."""

    async def whole() -> Burst:
        async with load_on(kubeconfig) as load:
            running = Sightings(partial(_is_running, prefix), pods)
            status_deltas = Sightings(partial(_is_running, prefix), len(jobs))
            verdicts = Sightings(_is_verdict, len(hopeless))
            await load.watch(RUNNING_PODS, running)
            await load.watch(JOBS, status_deltas, verdicts)
            began = time.perf_counter()
            asked: dict[str, float] = {}
            submitting = asyncio.create_task(load.create(JOBS, jobs))
            for number, body in enumerate(hopeless):
                asked[hopeless_name(number)] = time.perf_counter()
                await load.post(JOBS, body)
                await asyncio.sleep(1.0)
            await submitting
            submitted_at = time.perf_counter()
            for each in (running, status_deltas, verdicts):
                await load.all_seen(each, patience_seconds)
            late = [verdicts.at[name] - at for name, at in asked.items()]
            statuses = status_deltas.last if jobs else began
            return Burst(submitted_at - began, running.last - began if pods else 0.0, statuses - began, late)

    return asyncio.run(whole())


def job_name(number: int) -> str:
    return f"job-{number:06}"


def hopeless_name(number: int) -> str:
    return f"never-{number:06}"


def _is_running(prefix: str, seen: Seen) -> bool:
    """A pod or a job; earlier ones of other names may run as well."""
    return seen.status.phase == "Running" and seen.metadata.name.startswith(prefix)


def _is_verdict(seen: Seen) -> bool:
    return bool(seen.status.reason) and seen.metadata.name.startswith("never-")


def job_body(name: str, workers: int = 1, gpus: int = 1) -> bytes:
    """A TrainingJob of Sterna's own kind."""
    spec = {
        "image": "training:1",
        "command": ["python", "train.py"],
        "workers": workers,
        "resources": {"cpu": 1, "memory": "1Gi", "gpu": gpus},
    }
    document = {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
    return msgspec.json.encode(document)


def pod_body(template: dict[str, Any], number: int, node: str) -> bytes:
    """A pod like the template, of another name, on a node."""
    metadata = {**template["metadata"], "name": f"{job_name(number)}-worker-0"}
    return msgspec.json.encode({**template, "metadata": metadata, "spec": {**template["spec"], "nodeName": node}})


def plain_pod() -> dict[str, Any]:
    """Return the pod of a one-device job without an operator to create one."""
    container = {
        "name": "worker",
        "image": "training:1",
        "command": ["python", "train.py"],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "training"}}, "spec": spec}
