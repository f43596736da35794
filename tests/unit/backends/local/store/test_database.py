"""Durability, order and error messages of the database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.local.store.database import Database
from sterna.backends.local.store.schema import STEPS, upgrade
from sterna.errors import UserError

SET = "INSERT OR REPLACE INTO settings VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sterna.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path)
    yield opened
    opened.close()


def settings(database: Database) -> dict[str, bytes]:
    return {str(name): value for name, value in database.read("SELECT name, value FROM settings")}


def test_acknowledged_write_is_visible_to_another_connection(database: Database, path: Path) -> None:
    database.write([(SET, ["a", b"1"])])
    other = sqlite3.connect(path)
    assert other.execute("SELECT value FROM settings").fetchall() == [(b"1",)]
    other.close()


def test_database_uses_wal_with_full_synchronisation(database: Database) -> None:
    # Acknowledged writes survive a power cut only with this setting.
    assert database._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_deferred_writes_keep_their_order(database: Database) -> None:
    for number in range(100):
        database.write_later([(SET, ["a", str(number).encode()])])
    database.flush()
    assert settings(database) == {"a": b"99"}


def test_concurrent_writers_lose_no_write(database: Database) -> None:
    def write(name: int) -> None:
        for number in range(20):
            database.write([(SET, [f"{name}-{number}", b""])])

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(settings(database)) == 160


def test_statements_of_one_write_are_atomic(database: Database) -> None:
    with pytest.raises(UserError):
        database.write([(SET, ["a", b"1"]), ("INSERT INTO nowhere VALUES (1)", [])])
    assert settings(database) == {}


def test_failed_write_does_not_roll_back_other_writes(database: Database) -> None:
    database.write_later([(SET, ["a", b"1"])])
    with pytest.raises(UserError):
        database.write([("INSERT INTO nowhere VALUES (1)", [])])
    database.flush()
    assert settings(database) == {"a": b"1"}


def test_full_disk_fails_a_write_and_retries_a_deferred_write(database: Database) -> None:
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UserError, match="the disk is full; free some space"):
        database.write([(SET, ["large", b"x" * 1_000_000])])
    database.write_later([(SET, ["later", b"x" * 1_000_000])])
    with pytest.raises(UserError, match="full"):
        database.write([(SET, ["large", b"x" * 1_000_000])])
    assert database.last_error
    database._connection.execute("PRAGMA max_page_count = 1000000")
    database.flush()
    assert set(settings(database)) == {"later"}
    assert not database.last_error


def test_close_flushes_deferred_writes(path: Path) -> None:
    database = Database(path)
    database.write_later([(SET, ["a", b"1"])])
    database.close()
    again = Database(path)
    assert settings(again) == {"a": b"1"}
    again.close()


def test_closed_database_rejects_writes(path: Path) -> None:
    database = Database(path)
    database.close()
    with pytest.raises(UserError, match="shutting down"):
        database.write([(SET, ["a", b"1"])])


def test_older_schema_is_upgraded(path: Path) -> None:
    old = sqlite3.connect(path, isolation_level=None)
    upgrade(old, "here", STEPS[:1])
    old.execute(SET, ["a", b"1"])
    upgrade(old, "here", [*STEPS[:1], "CREATE TABLE more (x);", "ALTER TABLE more ADD COLUMN y;"])
    assert old.execute("PRAGMA user_version").fetchone() == (3,)
    assert old.execute("SELECT x, y FROM more").fetchall() == []
    assert old.execute("SELECT value FROM settings").fetchall() == [(b"1",)]
    old.close()


def test_newer_schema_is_rejected(path: Path) -> None:
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    newer.commit()
    newer.close()
    with pytest.raises(UserError, match="newer Sterna"):
        Database(path)


def test_damaged_file_is_rejected_with_a_message(path: Path) -> None:
    path.write_bytes(b"this is not a database, whatever it may look like" * 100)
    with pytest.raises(UserError, match="damaged"):
        Database(path)
