"""Nodes without machines: one asyncio loop registers hundreds of them, renews their leases, and is their kubelets.

In a test: `with FakeNodes(plane.kubeconfig, fleet(2, gpus=8)) as nodes:`, on a thread of its own, which ends pods and
loses nodes on request. For measurements a process of its own, which prints `ready` and, at its end, its CPU time:
`python -m tests.kubernetes.fake_nodes --kubeconfig F --nodes 500`. What kubelets do is in `kubelets.py`; here is I/O.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tests.kubernetes.api import STRATEGIC, Login, login_of
from tests.kubernetes.kubelets import Call, FakeNode, Kubelets, Pod, stamp

IN_FLIGHT = 16
LEASE_SECONDS = 40
CLOSING_SECONDS = 0.25
"""What TLS connections take to close after aiohttp has let go of them."""
PODS = "/api/v1/pods?fieldSelector=spec.nodeName!%3D"


class _Listing(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta
    items: list[Pod] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


@dataclass(frozen=True)
class Habits:
    """Options of a fleet."""

    renew_seconds: float = 2.0
    """Seconds between renewals of a node's Lease; controllers miss a node after 20. 0: no Leases."""
    has_logs: bool = False
    """True if the API server can read logs."""


def fleet(
    count: int, cpus: int = 64, memory: str = "256Gi", gpus: int = 8, labels: Mapping[str, str] | None = None
) -> list[FakeNode]:
    """Equal nodes: node-0000, node-0001, .."""
    room = {"cpu": str(cpus), "memory": memory, "pods": "250"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return [FakeNode(f"node-{number:04}", room, labels or {}) for number in range(count)]


class FakeNodes:
    """A running fleet, for as long as its block."""

    def __init__(self, kubeconfig: Path, nodes: Sequence[FakeNode], habits: Habits | None = None) -> None:
        self._work = _Work(login_of(kubeconfig), {node.name: node for node in nodes}, habits or Habits())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake-nodes", daemon=True)
        self._ready = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> FakeNodes:
        self._thread.start()
        self._ready.wait()
        if self._error:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """All kubelets fall silent; the nodes stay registered."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._work.stop.set)
            self._thread.join()

    def end(self, pod: str, exit_code: int = 0, message: str = "", namespace: str = "default") -> None:
        """Its container ends by itself."""
        self._send_calls(lambda now: self._work.kubelets.end(f"{namespace}/{pod}", exit_code, message, now))

    def lose(self, node: str) -> None:
        """No word from it any more."""
        self._send_calls(lambda now: self._work.kubelets.lose(node))

    def heal(self, node: str) -> None:
        """Bring the node back, without its containers."""
        self._send_calls(lambda now: [*self._work.kubelets.heal(node, now), _lease(node, False), _readiness(node)])

    def _send_calls(self, what: Callable[[float], Iterable[Call]]) -> None:
        async def send() -> None:
            self._work.send(what(time.time()))

        asyncio.run_coroutine_threadsafe(send(), self._loop).result()

    def _run(self) -> None:
        async def whole() -> None:
            await self._work.run(self._ready.set)

        try:
            self._loop.run_until_complete(whole())
        except BaseException as error:  # raised in the thread that waits for the fleet
            self._error = error
        finally:
            self._loop.close()
            self._ready.set()


class _Work:
    """The loop's own part."""

    def __init__(self, login: Login, nodes: Mapping[str, FakeNode], habits: Habits) -> None:
        self._login, self._nodes, self._habits = login, nodes, habits
        self.kubelets = Kubelets(nodes)
        self.stop = asyncio.Event()
        self._calls: asyncio.Queue[Call] = asyncio.Queue()
        self._is_due = asyncio.Event()
        self._port = 0
        self.counts: dict[str, int] = {}

    async def run(self, tell_ready: Callable[[], None]) -> None:
        """Until `stop` is set."""
        headers = {"Authorization": f"Bearer {self._login.token}"} if self._login.token else {}
        connector = aiohttp.TCPConnector(limit=IN_FLIGHT + 8, ssl=self._login.context)
        base = f"https://{self._login.host}:{self._login.port}"
        async with aiohttp.ClientSession(base, connector=connector, headers=headers) as self._session:
            runner = await self._serve_logs() if self._habits.has_logs else None
            tasks = [asyncio.create_task(self._send_all()) for _ in range(IN_FLIGHT)]
            try:
                await self._register()
                coroutines: list[Coroutine[Any, Any, None]] = [self._follow(), self._tick()]
                coroutines += [self._renew()] if self._habits.renew_seconds else []
                tasks += [asyncio.create_task(each) for each in coroutines]
                tell_ready()
                await self.stop.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if runner is not None:
                    await runner.cleanup()
        await asyncio.sleep(CLOSING_SECONDS)

    def send(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._calls.put_nowait(call)
        self._is_due.set()  # something may have been put off

    async def _send_all(self) -> None:
        while True:
            call = await self._calls.get()
            try:
                await self._call(call)
            finally:
                self._calls.task_done()

    async def _call(self, call: Call) -> int:
        """Retry while the server is overloaded; a rejection is final, because the watch shows the state."""
        wait_seconds = 0.05
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                headers = {"Content-Type": call.content_type}
                async with self._session.request(call.method, call.path, data=call.body, headers=headers) as answer:
                    await answer.read()
                self.counts[call.method] = self.counts.get(call.method, 0) + 1
                if answer.status != 429 and answer.status < 500:
                    return answer.status
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, 2.0)

    async def _register(self) -> None:
        for node in self._nodes.values():
            body = json.dumps(self._node(node)).encode()
            self._calls.put_nowait(Call("POST", "/api/v1/nodes", body))
            if self._habits.renew_seconds:
                self._calls.put_nowait(_lease(node.name, True))
        await self._calls.join()

    def _node(self, node: FakeNode) -> dict[str, Any]:
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": node.name}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name, **node.labels}},
            "status": {
                "capacity": dict(node.allocatable),
                "allocatable": dict(node.allocatable),
                "conditions": [_ready_condition()],
                "addresses": addresses,
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                "nodeInfo": {"kubeletVersion": "fake", "operatingSystem": "linux", "architecture": "amd64"},
            },
        }

    async def _renew(self) -> None:
        """A few at a time, so that they do not come in waves."""
        names = list(self._nodes)
        step_seconds = self._habits.renew_seconds / len(names)
        began, number = time.monotonic(), 0
        while True:
            while number * step_seconds <= time.monotonic() - began:
                name = names[number % len(names)]
                if not self.kubelets.is_lost(name):
                    self._calls.put_nowait(_lease(name, False))
                number += 1
            await asyncio.sleep(max(0.1, step_seconds))

    async def _tick(self) -> None:
        while True:
            due = self.kubelets.next_due()
            seconds = None if due is None else max(0.0, due - time.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_due.wait()
            self._is_due.clear()
            for call in self.kubelets.tick(time.time()):
                self._calls.put_nowait(call)

    async def _follow(self) -> None:
        """List and watch; list again after any end of a watch."""
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, _TooOld):
                async with self._session.get(f"{PODS}&resourceVersion=0") as answer:
                    answer.raise_for_status()
                    listing = msgspec.json.decode(await answer.read(), type=_Listing)
                self.kubelets.relisted({pod.key for pod in listing.items})
                for pod in listing.items:
                    self.send(self.kubelets.see(pod, time.time()))
                await self._watch(listing.metadata.resource_version)
            await asyncio.sleep(0.1)

    async def _watch(self, version: str) -> None:
        decode_event = msgspec.json.Decoder(_Event).decode
        decode_pod = msgspec.json.Decoder(Pod).decode
        path = f"{PODS}&watch=1&resourceVersion={version}"
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            answer.raise_for_status()
            async for line in _lines(answer.content):
                event = decode_event(line)
                if event.type == "ERROR":
                    raise _TooOld
                pod = decode_pod(event.object)
                if event.type == "DELETED":
                    self.kubelets.gone(pod)
                else:
                    self.send(self.kubelets.see(pod, time.time()))

    async def _serve_logs(self) -> web.AppRunner:
        """As the API server asks kubelets; it does not check who they are."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        runner = web.AppRunner(app)
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._login.load_pair(context)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self._port = runner.addresses[0][1]
        return runner

    async def _log(self, request: web.Request) -> web.Response:
        text = self.kubelets.log(f"{request.match_info['namespace']}/{request.match_info['pod']}")
        return web.Response(status=404) if text is None else web.Response(text=text)


class _TooOld(Exception):  # noqa: N818  (not an error: the next list mends it)
    """The watch has fallen behind what the server remembers."""


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; aiohttp's own iterator stops at its buffer size."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


def _readiness(node: str) -> Call:
    body = json.dumps({"status": {"conditions": [_ready_condition()]}}).encode()
    return Call("PATCH", f"/api/v1/nodes/{node}/status", body, STRATEGIC)


def _ready_condition() -> dict[str, str]:
    now = stamp(time.time())
    words = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {"type": "Ready", "status": "True", **words, "lastHeartbeatTime": now, "lastTransitionTime": now}


def _lease(node: str, is_new: bool) -> Call:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z"
    spec = {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
    if is_new:
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec}
        return Call("POST", path, json.dumps(body).encode())
    return Call(
        "PATCH", f"{path}/{node}", json.dumps({"spec": {"renewTime": moment}}).encode(), "application/merge-patch+json"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Register fake nodes and be their kubelets, until told to end.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--memory", default="256Gi")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--renew-seconds", type=float, default=2.0, help="between renewals of a lease; 0: none")
    asked = parser.parse_args()
    nodes = fleet(asked.nodes, asked.cpus, asked.memory, asked.gpus)
    work = _Work(login_of(asked.kubeconfig), {node.name: node for node in nodes}, Habits(asked.renew_seconds))

    async def whole() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.stop.set)
        await work.run(lambda: print("ready", flush=True))

    asyncio.run(whole())
    cost = {"cpu_seconds": round(time.process_time(), 3), "requests": work.counts}
    print(json.dumps(cost), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
