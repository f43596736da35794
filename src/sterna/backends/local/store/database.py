"""SQLite in the state folder, with one writer thread and group commit.

`write` returns when its statements are on disk, `write_later` at once. The writer thread commits everything that
arrived meanwhile in one transaction, so a thousand submissions share a few disk flushes. Order is kept. Records are
bytes here.
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
"""Delay before asynchronous statements are retried while the disk refuses them."""

_LAZY_SECONDS = 0.02
"""Delay of asynchronous statements, so that later ones share their flush."""


@dataclass
class _WriteBatch:
    """Statements of one caller, written all or none."""

    statements: Sequence[Statement]
    done: threading.Event | None
    error: UserError | None = field(default=None)


class Database:
    """An open database. `close` writes everything that is queued."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open_database(path)
        self._reading = _open_database(path)
        self._reader = threading.Lock()
        self._waiting: list[_WriteBatch] = []
        self._news = threading.Condition()
        self._is_closing = False
        self.last_error = ""
        """Why writing fails at present; empty: it works."""
        self._thread = threading.Thread(target=self._run_writer, name="database", daemon=True)
        self._thread.start()

    # Callers.

    def write(self, statements: Iterable[Statement]) -> None:
        """Return when all statements are on disk; raise if they cannot be written, with none of them stored."""
        batch = _WriteBatch(list(statements), threading.Event())
        self._enqueue(batch)
        assert batch.done is not None
        batch.done.wait()
        if batch.error is not None:
            raise batch.error

    def write_later(self, statements: Iterable[Statement]) -> None:
        """Queue statements after all earlier ones; retry until they are written."""
        self._enqueue(_WriteBatch(list(statements), None))

    def flush(self) -> None:
        """Return when everything queued so far is on disk."""
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

    # The writer thread.

    def _enqueue(self, batch: _WriteBatch) -> None:
        with self._news:
            if self._is_closing:
                raise UserError("The daemon is shutting down and takes no changes; try again when it is up.")
            self._waiting.append(batch)
            if batch.done is not None or len(self._waiting) == 1:  # else it has been notified already
                self._news.notify()

    def _run_writer(self) -> None:
        left: list[_WriteBatch] = []
        while True:
            with self._news:
                if not self._waiting and not self._is_closing:
                    self._news.wait(_RETRY_SECONDS if left else None)
                if not self._is_urgent():
                    # No caller is blocked on it: statements that follow shortly share its flush.
                    self._news.wait_for(self._is_urgent, _LAZY_SECONDS)
                is_last = self._is_closing
                batches, self._waiting = left + self._waiting, []
            left = self._commit(batches)
            if is_last:
                return

    def _is_urgent(self) -> bool:
        return self._is_closing or any(batch.done is not None for batch in self._waiting)

    def _commit(self, batches: list[_WriteBatch]) -> list[_WriteBatch]:
        """Write everything in one transaction; return asynchronous writes that failed, to be retried first."""
        if not batches:
            return []
        error = self._try(batches)
        self.last_error = str(error) if error else ""
        if error is None:
            for batch in batches:
                if batch.done is not None:
                    batch.done.set()
            return []
        if len(batches) > 1:
            # One of them may be at fault alone. Order is kept: a write that fails holds up all later ones.
            left: list[_WriteBatch] = []
            for batch in batches:
                left += _fail_or_requeue(batch, error) if left else self._commit([batch])
            return left
        return _fail_or_requeue(batches[0], error)

    def _try(self, batches: Sequence[_WriteBatch]) -> UserError | None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for batch in batches:
                for sql, values in batch.statements:
                    connection.execute(sql, values)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.rollback()
            return _sentence(self._path, error)
        return None


def _fail_or_requeue(batch: _WriteBatch, error: UserError) -> list[_WriteBatch]:
    """Fail a blocked caller; keep an asynchronous write for a retry."""
    if batch.done is None:
        return [batch]
    batch.error = error
    batch.done.set()
    return []


def _open_database(path: Path) -> sqlite3.Connection:
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
