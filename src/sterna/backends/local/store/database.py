"""The memory of a local cluster: SQLite in its state folder, one writer, durable before it answers.

Whoever writes hands over statements and either waits until they are on disk (`write`) or does not (`write_later`);
one thread commits whatever has come together meanwhile, so a thousand submissions share a few disk flushes. Order is
kept. Nothing here knows what a job is; records are bytes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.backends.local.store.schema import upgrade
from sterna.errors import UserError

Statement = tuple[str, Sequence[Any]]
"""SQL and its values."""

_RETRY_SECONDS = 1.0
"""Between two tries to write what nobody waits for, while the disk refuses."""

_LAZY_SECONDS = 0.02
"""How long what nobody waits for may wait for company."""


@dataclass
class _Parcel:
    """What one caller wants written, all or none."""

    statements: Sequence[Statement]
    done: threading.Event | None
    error: UserError | None = field(default=None)


class Database:
    """An open database. Closing it writes what is still waiting."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _opened(path)
        self._reading = _opened(path)
        self._reader = threading.Lock()
        self._waiting: list[_Parcel] = []
        self._news = threading.Condition()
        self._is_closing = False
        self.trouble = ""
        """Why writing fails at present; empty: it does not."""
        self._thread = threading.Thread(target=self._keep_writing, name="database", daemon=True)
        self._thread.start()

    # For everybody.

    def write(self, statements: Iterable[Statement]) -> None:
        """Return when all of it is on disk; raise, with none of it stored, if it cannot be."""
        parcel = _Parcel(list(statements), threading.Event())
        self._hand_over(parcel)
        assert parcel.done is not None
        parcel.done.wait()
        if parcel.error is not None:
            raise parcel.error

    def write_later(self, statements: Iterable[Statement]) -> None:
        """To be written soon, after everything that was handed over before; tried again until it can be."""
        self._hand_over(_Parcel(list(statements), None))

    def flush(self) -> None:
        """Return when everything handed over so far is on disk."""
        self.write([])

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._reader:
            try:
                return self._reading.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise _sentence(self._path, error) from None

    def close(self) -> None:
        with self._news:
            self._is_closing = True
            self._news.notify()
        self._thread.join()
        self._connection.close()
        with self._reader:
            self._reading.close()

    # The writer.

    def _hand_over(self, parcel: _Parcel) -> None:
        with self._news:
            if self._is_closing:
                raise UserError("The daemon is shutting down and takes no changes; try again when it is up.")
            self._waiting.append(parcel)
            if parcel.done is not None or len(self._waiting) == 1:  # else the writer knows that there is something
                self._news.notify()

    def _keep_writing(self) -> None:
        left: list[_Parcel] = []
        while True:
            with self._news:
                if not self._waiting and not self._is_closing:
                    self._news.wait(_RETRY_SECONDS if left else None)
                if not self._is_urgent():
                    # Nobody waits for it: what follows in a moment can share its flush.
                    self._news.wait_for(self._is_urgent, _LAZY_SECONDS)
                is_last = self._is_closing
                parcels, self._waiting = left + self._waiting, []
            left = self._commit(parcels)
            if is_last:
                return

    def _is_urgent(self) -> bool:
        return self._is_closing or any(parcel.done is not None for parcel in self._waiting)

    def _commit(self, parcels: list[_Parcel]) -> list[_Parcel]:
        """Write all in one transaction; what failed and nobody waits for, to be tried again before anything else."""
        if not parcels:
            return []
        error = self._try(parcels)
        self.trouble = str(error) if error else ""
        if error is None:
            for parcel in parcels:
                if parcel.done is not None:
                    parcel.done.set()
            return []
        if len(parcels) > 1:
            # One of them may be at fault alone. Order is kept: what cannot be written yet holds up all that follows.
            left: list[_Parcel] = []
            for parcel in parcels:
                left += _refused(parcel, error) if left else self._commit([parcel])
            return left
        return _refused(parcels[0], error)

    def _try(self, parcels: Sequence[_Parcel]) -> UserError | None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for parcel in parcels:
                for sql, values in parcel.statements:
                    connection.execute(sql, values)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.rollback()
            return _sentence(self._path, error)
        return None


def _refused(parcel: _Parcel, error: UserError) -> list[_Parcel]:
    """Tell whoever waits; what nobody waits for stays to be written."""
    if parcel.done is None:
        return [parcel]
    parcel.error = error
    parcel.done.set()
    return []


def _opened(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        upgrade(connection, str(path))
    except sqlite3.Error as error:
        raise _sentence(path, error) from None
    return connection


def _sentence(path: Path, error: sqlite3.Error) -> UserError:
    text = str(error)
    if "full" in text:
        advice = "the disk is full; free some space and try again"
    elif "not a database" in text or "malformed" in text:
        advice = "it is damaged; restore a copy of it, or choose another state folder with --state"
    elif "readonly" in text or "unable to open" in text:
        advice = "it cannot be written; change its permissions, or choose another state folder with --state"
    else:
        advice = f"{text}; try again, or choose another state folder with --state"
    return UserError(f"The state in '{path}' was not changed: {advice}.")
