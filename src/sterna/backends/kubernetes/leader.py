"""Leader election by a Lease: one replica of `apps/operator.py` writes, the others stand by.

Time is measured on a steady clock of our own, never read off the Lease: whether a holder has died is seen by its Lease
not changing for as long as it said it would be valid, so clocks that differ or jump do no harm. We lead from the moment
before a renewal was sent, and stop, unasked, when the renew deadline is over: five seconds before another may begin.

A Lease alone fences nothing: a write that left in time may arrive late. The admission policy that takes this Lease as
its parameter refuses it then. Whoever has lost does not stand again: its picture of the world is old, so its process
ends and a new one begins.
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
"""Annotation of the Lease: where the holder's service answers."""


@dataclass(frozen=True)
class Terms:
    """How long things take, in seconds."""

    lease: int = 15
    """Unchanged for so long, a Lease is anybody's."""
    renew_deadline: float = 10.0
    """So long after the last renewal we stop."""
    retry: float = 2.0


_USUAL = Terms()


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
    """One candidate. `step` makes one try and says when the next is due; `start` does so on a thread of its own."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        address: str = "",
        *,
        on_lost: Callable[[], None] = lambda: None,
        terms: Terms = _USUAL,
        steady: Callable[[], float] = steady_seconds,
        wall: Callable[[], float] = wall_seconds,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.identity, self.address = identity, address
        self.notes: Mapping[str, str] = {}
        """Further annotations that the Lease carries while we hold it."""
        self.trouble = ""
        """Why the last try failed, as a sentence; empty if it did not."""
        self.holder = ""
        """Who held the Lease when we last looked."""
        self._server, self._terms, self._on_lost = server, terms, on_lost
        self._steady, self._wall, self._draw = steady, wall, draw
        self._namespace, self._name = namespace, name
        self._path = LEASES.path(namespace, name)
        self._lease: Lease | None = None
        self._changed_at = 0.0
        """When we first saw the Lease as it is."""
        self._leads_until = 0.0
        self._has_led = self._is_lost = False
        self._over = threading.Event()
        self._leading = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    # What others ask.

    def may_write(self) -> bool:
        """Whether we lead at this moment; any thread may ask, and it asks nobody else."""
        return not self._is_lost and self._steady() < self._leads_until

    @property
    def is_lost(self) -> bool:
        """Whether we led and do no more; that is for good."""
        return self._is_lost

    @property
    def others_address(self) -> str:
        """Where another one answers that leads, `http://HOST:PORT`, as the Lease said when we last looked; empty:
        nobody else leads, or has not said where. Any thread may ask, and it asks nobody else."""
        lease = self._lease
        if lease is None or self._is_ours_to_take(self._steady()):
            return ""
        address = lease.metadata.annotations.get(ADDRESS, "")
        return address if "://" in address or not address else f"http://{address}"

    def wait(self, seconds: float | None = None) -> bool:
        """Until we lead, or have resigned; whether we lead."""
        self._leading.wait(seconds)
        return self.may_write()

    # Life on a thread.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stand no more; if we lead, give the Lease up so that another need not wait for its end."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(self._terms.renew_deadline)
        self.resign()

    def _run(self) -> None:
        pause = self.step()
        while not self._is_lost and not self._over.wait(pause):
            pause = self.step()

    # One try.

    def step(self) -> float:
        """Take or renew the Lease if we may; the seconds until the next try."""
        began = self._steady()
        if self._has_led and began >= self._leads_until:
            self._lose()
            return self._terms.retry
        try:
            self._try(began)
            self.trouble = ""
        except Retry as error:
            self.trouble = str(error)
        if self._has_led and not self._is_lost and self._steady() >= self._leads_until:
            self._lose()
        return self._pause()

    def resign(self) -> None:
        """Lead no more; the next in line may begin at once. Nothing is written if we do not lead."""
        if not self.may_write() or self._lease is None:
            return
        lease = self._lease
        self._is_lost = True
        released = msgspec.structs.replace(lease.spec, holder_identity=None, lease_duration_seconds=1)
        body = msgspec.json.encode(Lease(_meta_of(lease, dict.fromkeys((ADDRESS, *self.notes), "")), released))
        try:
            self._server.ask("PUT", self._path, body, timeout_seconds=self._terms.retry)
        except Retry:
            return  # then they wait for its end

    def _pause(self) -> float:
        """Those who stand by do not look all at once, but are there when the Lease becomes anybody's."""
        if not self._has_led:
            usual, left = self._terms.retry * (1.0 + 0.2 * self._draw()), self._free_at - self._steady()
            return min(usual, left) if left > 0.0 else usual
        left = self._leads_until - self._steady()
        return max(0.0, min(self._terms.retry, left))

    def _try(self, began: float) -> None:
        if not self._has_led or self._lease is None:
            self._look()
            if not self._is_ours_to_take(began):
                return
        if self._write(began):
            return
        self._look()  # somebody else was faster, wrote into it, or we did and never heard of it
        if self._has_led and self.holder not in ("", self.identity):
            self._lose()
        elif self._has_led:
            self._write(began)

    def _look(self) -> None:
        """Read the Lease; what counts is when we saw it change, at the latest."""
        answer = self._ask("GET", self._path)
        if answer.status == 404:
            self._lease, self.holder = None, ""
            return
        lease = _decoded(answer)
        if self._lease is None or lease.metadata.resource_version != self._lease.metadata.resource_version:
            self._changed_at = self._steady()
        self._lease, self.holder = lease, lease.spec.holder_identity or ""

    def _is_ours_to_take(self, now: float) -> bool:
        """It is free, it is ours (from before this container restarted), or its holder has been still for too long."""
        lease = self._lease
        if lease is None:
            return True
        spec = lease.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        return not self._has_led and now >= self._free_at

    @property
    def _free_at(self) -> float:
        """When a Lease that is not renewed becomes anybody's."""
        lease = self._lease  # which the leader's own thread may replace meanwhile
        seconds = lease.spec.lease_duration_seconds if lease is not None else None
        return self._changed_at + (seconds or self._terms.lease)

    def _write(self, began: float) -> bool:
        """Only a write that succeeds makes us leader, counted from before it was sent; whether it did."""
        body = msgspec.json.encode(self._wanted())
        if self._lease is None:
            answer = self._ask("POST", LEASES.path(self._namespace), body)
            if answer.status == 404:
                what = f"There is no namespace '{self._namespace}' to hold the Lease in"
                raise Retry(f"{what}; create it, or choose another with --lease-namespace.")
        else:
            answer = self._ask("PUT", self._path, body)
        if answer.is_done:
            self._lease, self.holder = _decoded(answer), self.identity
            self._has_led = True
            self._leads_until = began + self._terms.renew_deadline
            self._leading.set()
        return answer.is_done

    def _wanted(self) -> Lease:
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = self._lease.spec if self._lease is not None else LeaseSpec()
        is_taken = old.holder_identity != self.identity
        transitions = (old.lease_transitions or 0) + (1 if is_taken and self._lease is not None else 0)
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._terms.lease,
            acquire_time=now if is_taken else old.acquire_time,
            renew_time=now,
            lease_transitions=transitions,
        )
        meta = LeaseMeta(self._name, self._namespace) if self._lease is None else self._lease.metadata
        return Lease(_meta_of(Lease(meta), {ADDRESS: self.address, **self.notes}), spec)

    def _ask(self, verb: str, path: str, body: bytes = b"") -> WriteResult:
        """In less time than the deadline leaves for a second try."""
        answer = self._server.ask(verb, path, body, timeout_seconds=self._terms.renew_deadline / 2.0)
        if answer.is_done or answer.status in (404, 409):
            return answer
        raise Retry(_refused(answer, self._namespace))

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._leading.set()
            self._on_lost()


def _meta_of(lease: Lease, notes: Mapping[str, str]) -> LeaseMeta:
    """What others wrote beside ours stays; a note that is empty is taken away."""
    annotations = {key: value for key, value in lease.metadata.annotations.items() if key not in notes}
    annotations |= {key: value for key, value in notes.items() if value}
    return msgspec.structs.replace(lease.metadata, annotations=annotations)


def _decoded(answer: WriteResult) -> Lease:
    try:
        return _LEASES.decode(answer.body)
    except msgspec.DecodeError as error:
        raise Retry(f"The Lease cannot be read ({error}).") from None


def _refused(answer: WriteResult, namespace: str) -> str:
    if answer.status in (401, 403):
        what = f"Sterna may not hold its Lease in the namespace '{namespace}' ({answer.message})"
        return f"{what}; grant get, create and update on leases there, or choose another with --lease-namespace."
    return f"The API server refused the Lease ({answer.status} {answer.reason}: {answer.message})."
