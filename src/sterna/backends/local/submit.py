"""Submission: validate new jobs, give them names and keys, store them, then add them to the job store.

Orders that arrive together share one disk flush; each is accepted or rejected by itself, with all of its jobs. An
idempotency key is accepted once, also across restarts of the daemon. Jobs are not started here.
"""

from __future__ import annotations

import getpass
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.jobs.validation import JobValidator
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.store.database import Statement
from sterna.backends.local.store.job_store import insertion
from sterna.backends.local.store.records import JobRecord, encode
from sterna.control.job_state import SaveEvidence
from sterna.errors import UserError
from sterna.model.job import JobSpec
from sterna.service.views import JobView

Order = tuple[Sequence[JobSpec], str]
"""Jobs that are created all or none, and their idempotency key; empty: none."""

_NEW = "waits: the next round will look at it."


@dataclass(frozen=True)
class _SubmitEntry:
    """An accepted order, ready to be stored."""

    records: Sequence[JobRecord]
    answer: list[JobView]
    key: str


class JobSubmitter:
    """Accepts orders. Any thread may call."""

    def __init__(self, backend: LocalBackend, admission: JobValidator) -> None:
        self._backend, self._store, self._validator = backend, backend.store, admission
        self._user = _me()
        self._keys: set[str] = set()
        self._freed = threading.Condition()

    def create_each(self, orders: Sequence[Order]) -> list[list[JobView] | UserError]:
        """Create each order durably; return its views or the reason for its rejection."""
        first: dict[str, int] = {}
        for place, (_, key) in enumerate(orders):
            first.setdefault(key, place)
        own = [place for place, (_, key) in enumerate(orders) if not key or first[key] == place]
        with self._hold_keys({key for key in first if key}):
            outcomes = self._find_answers(orders, own)
            outcomes |= self._accept_orders(orders, [place for place in own if place not in outcomes])
        return [outcomes[first[key] if key else place] for place, (_, key) in enumerate(orders)]

    @contextmanager
    def _hold_keys(self, keys: Collection[str]) -> Iterator[None]:
        """Keep other threads from creating under these keys."""
        with self._freed:
            while not self._keys.isdisjoint(keys):
                self._freed.wait()
            self._keys.update(keys)
        try:
            yield
        finally:
            with self._freed:
                self._keys.difference_update(keys)
                self._freed.notify_all()

    def _find_answers(self, orders: Sequence[Order], paths: Sequence[int]) -> dict[int, list[JobView] | UserError]:
        """Return the answers stored under the same keys."""
        keys = {orders[place][1]: place for place in paths if orders[place][1]}
        if not keys:
            return {}
        marks = ", ".join("?" * len(keys))
        found = self._store.database.read(f"SELECT key, names FROM answers WHERE key IN ({marks})", list(keys))
        return {keys[key]: msgspec.json.decode(kept, type=list[JobView]) for key, kept in found}

    def _accept_orders(self, orders: Sequence[Order], paths: Sequence[int]) -> dict[int, list[JobView] | UserError]:
        outcomes: dict[int, list[JobView] | UserError] = {}
        admitted: dict[int, Order] = {}
        for place in paths:
            try:
                self._admit(orders[place][0])
                admitted[place] = orders[place]
            except UserError as error:
                outcomes[place] = error
        try:
            answers = self._store_orders(list(admitted.values())) if admitted else []
        except BaseException as error:
            self._store.release(spec.name for specs, _ in admitted.values() for spec in specs)
            if not isinstance(error, UserError):
                raise
            return outcomes | dict.fromkeys(admitted, error)
        return outcomes | dict(zip(admitted, answers, strict=True))

    def _admit(self, specs: Sequence[JobSpec]) -> None:
        """Validate the jobs and reserve their names."""
        if not specs:
            raise UserError("There is no job in what was submitted; give at least one.")
        for spec in specs:
            self._validator.admit(spec)
        self._store.reserve([spec.name for spec in specs])

    def _store_orders(self, orders: Sequence[Order]) -> list[list[JobView]]:
        store = self._store
        numbers, statement = store.next_keys(sum(len(specs) for specs, _ in orders))
        unused = iter(numbers)
        entries = [self._entry(specs, key, unused) for specs, key in orders]
        statements: list[Statement] = [statement]
        for entry in entries:
            statements += [insertion(record) for record in entry.records]
            if entry.key:
                values = [entry.key, store.clock(), encode(entry.answer)]
                statements.append(("INSERT INTO answers VALUES (?, ?, ?)", values))
        store.database.write(statements)
        crash_point("daemon.acknowledging")
        self._tell(entries)
        return [entry.answer for entry in entries]

    def _entry(self, specs: Sequence[JobSpec], key: str, numbers: Iterator[int]) -> _SubmitEntry:
        now = self._store.clock()
        records = []
        for spec in specs:
            owned = spec if spec.user else replace(spec, user=self._user)
            record = JobRecord(
                key=next(numbers),
                spec=owned,
                submitted_at=now,
                minimum=owned.minimum,
                maximum=owned.maximum,
                waiting_since=now,
                reason=_NEW,
                save=SaveEvidence.DECLARED if owned.checkpoint else SaveEvidence.NONE,
            )
            records.append(record)
        return _SubmitEntry(records, [_first_view(record) for record in records], key)

    def _tell(self, entries: Sequence[_SubmitEntry]) -> None:
        """Publish stored jobs: add them to the job store and wake the loop."""
        store = self._store
        with store.lock:
            events = []
            for record in (record for entry in entries for record in entry.records):
                store.enter(record)
                asks = f"{record.spec.request} worker" + ("" if record.spec.request == 1 else "s")
                events.append((record.name, "submitted", f"submitted: asks for {asks}."))
            store.note_all(events)
            self._backend.note_arrival()
        self._backend.wake()


def _first_view(record: JobRecord) -> JobView:
    spec = record.spec
    return JobView(
        record.name, spec.kind, "waiting", record.reason, 0, spec.minimum, spec.maximum, spec.request, spec.priority,
        spec.category, spec.user, record.submitted_at, notices=list(spec.notices),
    )  # fmt: skip


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
