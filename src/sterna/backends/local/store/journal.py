"""The journal of a running local cluster, as rows of the database.

The oldest rounds are dropped above a size limit. `write_journal` writes the stored rounds to a journal file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sterna.backends.local.store.database import Database
from sterna.control.journal import VERSION, JournalWriter, Opening, RoundLine, StaticFacts
from sterna.control.shadow_rules import ShadowRound
from sterna.model.plan import Decision
from sterna.model.snapshot import Snapshot
from sterna.service.views import PolicyView

_MOST_BYTES = 64 << 20
_MOST_EVENTS = 100_000
_PRUNE_EVERY = 256


class StoredJournal(JournalWriter):
    """Writes rounds to the database, and continues the numbering of an earlier daemon."""

    def __init__(self, database: Database, rules: PolicyView) -> None:
        self._database = database
        self._encoder = msgspec.json.Encoder()
        self._world: StaticFacts | None = None
        self._worlds = 0
        database.flush()
        last = database.read("SELECT line FROM journal WHERE kind = 'round' ORDER BY id DESC LIMIT 1")
        self._rounds = msgspec.json.decode(last[0][0], type=RoundLine).round + 1 if last else 0
        self._opening: Opening | None = None
        self.change_rules(rules)

    def change_rules(self, rules: PolicyView) -> None:
        """Note that later rounds are decided by these rules."""
        opening = opening_of(rules)
        if opening != self._opening:
            self._opening = opening
            self._append(opening)

    def record(self, snapshot: Snapshot, decision: Decision, shadow: ShadowRound | None = None) -> None:
        super().record(snapshot, decision, shadow)
        if self._rounds % _PRUNE_EVERY == 0:
            prune(self._database)

    def _append(self, line: Opening | StaticFacts | RoundLine) -> None:
        kind = "round" if isinstance(line, RoundLine) else "world" if isinstance(line, StaticFacts) else "opening"
        if isinstance(line, RoundLine):
            line.world = 0  # rows are pruned from the front and never torn, so there is no need to count them
        sql = "INSERT INTO journal (kind, line) VALUES (?, ?)"
        self._database.write_later([(sql, [kind, self._encoder.encode(line)])])


def opening_of(rules: PolicyView) -> Opening:
    return Opening(VERSION, rules.policy, rules.placement, rules.migration, rules.cpu_share, rules.reservation)


def prune(database: Database, most_bytes: int = _MOST_BYTES) -> None:
    """Drop the oldest events, and the oldest rounds up to a line with nodes on which later rounds depend."""
    database.write_later([("DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?", [_MOST_EVENTS])])
    total = int(database.read("SELECT coalesce(sum(length(line)), 0) FROM journal")[0][0])
    if total <= most_bytes:
        return
    half = int(database.read("SELECT (min(id) + max(id)) / 2 FROM journal")[0][0])
    first = database.read("SELECT max(id) FROM journal WHERE kind = 'world' AND id <= ?", [half])[0][0]
    if first is not None:
        database.write_later([("DELETE FROM journal WHERE id < ?", [first])])


def write_journal(database: Database, rules: PolicyView, path: Path) -> bool:
    """Write the stored rounds to a journal file, with the current rules; return False if there are none."""
    database.flush()
    rows = database.read("SELECT kind, line FROM journal WHERE kind != 'opening' ORDER BY id")
    if not any(kind == "round" for kind, _ in rows):
        return False
    lines = [msgspec.json.encode(opening_of(rules)), *(line for _, line in rows)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return True
