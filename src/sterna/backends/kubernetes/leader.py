"""Leader election by a Lease: one replica of `apps/operator.py` writes, the others stand by.

Time is measured on a monotonic clock of this process, never read off the Lease: a holder counts as dead once its Lease
has not changed for its duration, so clock skew and clock steps do no harm. A renewal counts from the moment before it
was sent; the holder stops writing at the renew deadline, five seconds before another replica may begin.

The Lease is renewed only while `is_alive` returns True, so a replica whose scheduling loop hangs loses it.

A Lease alone fences nothing: a write that left in time may arrive late. The admission policy that takes this Lease as
its parameter rejects it then. A replica that lost the Lease does not stand again: its cache is stale, so its process
exits and a new one starts.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.resources import LEASES, ApiServer, WriteResult
from sterna.control.clock import steady_seconds
from sterna.errors import Retry
from sterna.kinds.labels import GROUP

ADDRESS = f"{GROUP}/address"
"""Annotation of the Lease: address of the holder's HTTP server."""


@dataclass(frozen=True)
class LeaseTimes:
    """Durations of the election, in seconds."""

    lease: int = 15
    """Duration of the Lease: unchanged for this long, any replica may take it."""
    renew_deadline: float = 10.0
    """The holder stops writing this long after its last renewal."""
    retry: float = 2.0


_DEFAULT_TIMES = LeaseTimes()


class LeaseMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    owner_references: list[dict[str, Any]] = []
    finalizers: list[str] = []


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, rename="camel"):
    metadata: LeaseMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = LEASES.api_version
    kind: str = LEASES.kind


_LEASES = msgspec.json.Decoder(Lease)


def wall_seconds() -> float:
    return time.time()


class Leadership:
    """One candidate. `step` makes one attempt; `start` repeats it on a thread of its own."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        address: str = "",
        *,
        on_lost: Callable[[], None] = lambda: None,
        is_alive: Callable[[], bool] = lambda: True,
        times: LeaseTimes = _DEFAULT_TIMES,
        steady: Callable[[], float] = steady_seconds,
        wall: Callable[[], float] = wall_seconds,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`address` is published in the Lease for the other replicas. `on_lost` is called once, from the thread."""
        self.identity, self.address = identity, address
        self.notes: Mapping[str, str] = {}
        """Further annotations of the Lease while this replica holds it."""
        self.last_error = ""
        """Why the last attempt failed, as a sentence; empty if it did not."""
        self.holder = ""
        """Holder of the Lease when it was last read."""
        self._server, self._times, self._on_lost, self._is_alive = server, times, on_lost, is_alive
        self._steady, self._wall, self._draw = steady, wall, draw
        self._namespace, self._name = namespace, name
        self._path = LEASES.path(namespace, name)
        self._lease: Lease | None = None
        self._changed_at = 0.0
        """Time at which the Lease was first seen in its current version."""
        self._leads_until = 0.0
        self._has_led = self._is_lost = False
        self._over = threading.Event()
        self._leading = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    # State, for any thread.

    def may_write(self) -> bool:
        """True if this replica leads now. Does no I/O."""
        return not self._is_lost and self._steady() < self._leads_until

    @property
    def is_lost(self) -> bool:
        """True for good once this replica has lost the Lease."""
        return self._is_lost

    @property
    def leader_address(self) -> str:
        """`http://HOST:PORT` of another replica that leads, from the Lease as last read; empty if there is none or it
        published no address. Does no I/O."""
        lease = self._lease
        if lease is None or self._may_take(self._steady()):
            return ""
        address = lease.metadata.annotations.get(ADDRESS, "")
        return address if "://" in address or not address else f"http://{address}"

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until this replica leads or has lost the Lease; return whether it leads."""
        self._leading.wait(seconds)
        return self.may_write()

    # The thread.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the candidacy; a held Lease is released, so that another replica need not wait until it expires."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(self._times.renew_deadline)
        self.resign()

    def _run(self) -> None:
        pause = self.step()
        while not self._is_lost and not self._over.wait(pause):
            pause = self.step()

    # One attempt.

    def step(self) -> float:
        """Take or renew the Lease if possible; return the seconds until the next attempt."""
        began = self._steady()
        if self._has_led and began >= self._leads_until:
            self._lose()
            return self._times.retry
        try:
            if not self._is_alive():
                raise Retry("The scheduling loop makes no progress, so this replica does not take or renew the Lease.")
            self._attempt(began)
            self.last_error = ""
        except Retry as error:
            self.last_error = str(error)
        if self._has_led and not self._is_lost and self._steady() >= self._leads_until:
            self._lose()
        return self._pause()

    def resign(self) -> None:
        """Release the Lease, so that another replica may take it at once. No-op if this replica does not lead."""
        if not self.may_write() or self._lease is None:
            return
        lease = self._lease
        self._is_lost = True
        released = msgspec.structs.replace(lease.spec, holder_identity=None, lease_duration_seconds=1)
        body = msgspec.json.encode(Lease(_annotated_meta(lease, dict.fromkeys((ADDRESS, *self.notes), "")), released))
        try:
            self._server.ask("PUT", self._path, body, timeout_seconds=self._times.retry)
        except Retry:
            return  # the Lease expires instead

    def _pause(self) -> float:
        """Jittered for replicas that stand by, but not longer than until the Lease expires."""
        if not self._has_led:
            usual, left = self._times.retry * (1.0 + 0.2 * self._draw()), self._expires_at - self._steady()
            return min(usual, left) if left > 0.0 else usual
        left = self._leads_until - self._steady()
        return max(0.0, min(self._times.retry, left))

    def _attempt(self, began: float) -> None:
        if not self._has_led or self._lease is None:
            self._read()
            if not self._may_take(began):
                return
        if self._write(began):
            return
        self._read()  # conflict: another replica took it, a client changed it, or our own write had no reply
        if self._has_led and self.holder not in ("", self.identity):
            self._lose()
        elif self._has_led:
            self._write(began)

    def _read(self) -> None:
        """Read the Lease and note when its version changed."""
        answer = self._ask("GET", self._path)
        if answer.status == 404:
            self._lease, self.holder = None, ""
            return
        lease = _decode(answer)
        if self._lease is None or lease.metadata.resource_version != self._lease.metadata.resource_version:
            self._changed_at = self._steady()
        self._lease, self.holder = lease, lease.spec.holder_identity or ""

    def _may_take(self, now: float) -> bool:
        """True if the Lease is free, ours (from before this container restarted), or expired."""
        lease = self._lease
        if lease is None:
            return True
        spec = lease.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        return not self._has_led and now >= self._expires_at

    @property
    def _expires_at(self) -> float:
        """Time at which the Lease expires unless it is renewed."""
        lease = self._lease  # read once: the election thread may replace it
        seconds = lease.spec.lease_duration_seconds if lease is not None else None
        return self._changed_at + (seconds or self._times.lease)

    def _write(self, began: float) -> bool:
        """Write the Lease; success makes this replica leader, counted from `began`. Return whether it succeeded."""
        body = msgspec.json.encode(self._build_lease())
        if self._lease is None:
            answer = self._ask("POST", LEASES.path(self._namespace), body)
            if answer.status == 404:
                what = f"There is no namespace '{self._namespace}' to hold the Lease in"
                raise Retry(f"{what}; create it, or choose another with --lease-namespace.")
        else:
            answer = self._ask("PUT", self._path, body)
        if answer.is_done:
            self._lease, self.holder = _decode(answer), self.identity
            self._has_led = True
            self._leads_until = began + self._times.renew_deadline
            self._leading.set()
        return answer.is_done

    def _build_lease(self) -> Lease:
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = self._lease.spec if self._lease is not None else LeaseSpec()
        is_taken = old.holder_identity != self.identity
        transitions = (old.lease_transitions or 0) + (1 if is_taken and self._lease is not None else 0)
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._times.lease,
            acquire_time=now if is_taken else old.acquire_time,
            renew_time=now,
            lease_transitions=transitions,
        )
        meta = LeaseMeta(self._name, self._namespace) if self._lease is None else self._lease.metadata
        return Lease(_annotated_meta(Lease(meta), {ADDRESS: self.address, **self.notes}), spec)

    def _ask(self, verb: str, path: str, body: bytes = b"") -> WriteResult:
        """Send a request with a timeout that leaves time for a second attempt before the renew deadline."""
        answer = self._server.ask(verb, path, body, timeout_seconds=self._times.renew_deadline / 2.0)
        if answer.is_done or answer.status in (404, 409):
            return answer
        raise Retry(_describe_rejection(answer, self._namespace))

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._leading.set()
            self._on_lost()


def _annotated_meta(lease: Lease, notes: Mapping[str, str]) -> LeaseMeta:
    """Metadata with `notes` as annotations; foreign annotations stay, empty notes are removed."""
    annotations = {key: value for key, value in lease.metadata.annotations.items() if key not in notes}
    annotations |= {key: value for key, value in notes.items() if value}
    return msgspec.structs.replace(lease.metadata, annotations=annotations)


def _decode(answer: WriteResult) -> Lease:
    try:
        return _LEASES.decode(answer.body)
    except msgspec.DecodeError as error:
        raise Retry(f"The Lease cannot be read ({error}).") from None


def _describe_rejection(answer: WriteResult, namespace: str) -> str:
    if answer.status in (401, 403):
        what = f"Sterna may not hold its Lease in the namespace '{namespace}' ({answer.message})"
        return f"{what}; grant get, create and update on leases there, or choose another with --lease-namespace."
    return f"The API server refused the Lease ({answer.status} {answer.reason}: {answer.message})."
