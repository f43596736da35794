"""Tables of the state database and their migrations.

A released step is never edited: changes are appended as new steps, so that every older state folder can be opened. A
folder written by a newer version is rejected, because guessing could lose jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from sterna.errors import UserError

STEPS: tuple[str, ...] = (
    """
    CREATE TABLE jobs (
        key    INTEGER PRIMARY KEY,
        name   TEXT NOT NULL UNIQUE,
        record BLOB NOT NULL
    );
    CREATE TABLE events (
        number   INTEGER PRIMARY KEY,
        at       REAL NOT NULL,
        job      TEXT NOT NULL,
        kind     TEXT NOT NULL,
        sentence TEXT NOT NULL
    );
    CREATE INDEX events_of_job ON events (job, number);
    CREATE TABLE progress (
        id      INTEGER PRIMARY KEY,
        job     INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        at      REAL NOT NULL,
        step    INTEGER,
        total   INTEGER,
        metrics BLOB NOT NULL
    );
    CREATE INDEX progress_of_job ON progress (job, id);
    CREATE TABLE positions (
        job     INTEGER NOT NULL,
        replica TEXT NOT NULL,
        place   BLOB NOT NULL,
        PRIMARY KEY (job, replica)
    );
    CREATE TABLE learned (category TEXT PRIMARY KEY, lesson BLOB NOT NULL);
    CREATE TABLE journal (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, line BLOB NOT NULL);
    CREATE TABLE answers (key TEXT PRIMARY KEY, at REAL NOT NULL, names BLOB NOT NULL);
    CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL);
    """,
)
"""Step n migrates from version n to version n + 1."""


def upgrade(connection: sqlite3.Connection, where: str, steps: Sequence[str] = STEPS) -> None:
    """Migrate a database to the newest version, all steps or none."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        raise UserError(
            f"'{where}' was written by a newer Sterna: its form is {version}, this one knows {len(steps)}; start that "
            "version, or choose another state folder with --state."
        )
    if version == len(steps):
        return
    script = "".join(steps[version:])
    connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {len(steps)}; COMMIT;")
