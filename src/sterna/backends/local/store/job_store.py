"""`JobStore`: all jobs and events of a local cluster, in memory and on disk.

Changes are saved asynchronously, unless the caller waits for the database. One lock guards everything; it is not held
while waiting for the disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from sterna.backends.local.store.database import Database, Statement
from sterna.backends.local.store.node_slices import Slices
from sterna.backends.local.store.records import ACTIVE, JobRecord, NodeWorkers, decode_record, encode
from sterna.control.learned_curves import LearnedCurves
from sterna.control.progress_tracker import ProgressReport, ProgressState, ProgressTracker, category_of
from sterna.errors import did_you_mean
from sterna.kinds.registry import find_kind
from sterna.model.cluster import MILLI, NOWHERE, Assignment, Shape
from sterna.model.growth import GrowthRule
from sterna.model.job import JobSpec
from sterna.model.learned import CategoryRecord
from sterna.model.reason import Reason
from sterna.progress.report import Positions
from sterna.service.errors import NameTakenError, NotFoundError
from sterna.service.views import EventView

COUNTED_CPUS = 10
"""Thousandths of a CPU that a worker without a CPU request counts for on a shared node, so that jobs are spread."""

_log = logging.getLogger(__name__)
_EVENTS = 10_000
"""Events kept in memory; older ones are read from disk."""
_LISTENING_SECONDS = 5.0
"""Keep-alive interval for change subscribers."""

Clock = Callable[[], float]


class LocalJob:
    """A job with its transient state."""

    __slots__ = (
        "assignment",
        "category",
        "cores",
        "key",
        "name",
        "noted_cpu_share",
        "progress",
        "reason",
        "record",
        "reported_at",
        "shape",
        "weights",
    )

    def __init__(
        self, record: JobRecord, shape: Shape, cores: float, assignment: Assignment, progress: ProgressState | None
    ) -> None:
        self.record = record
        self.key, self.name = record.key, record.name
        self.shape = shape
        self.cores = cores
        """Cores that one worker can use."""
        self.category = category_of(record.name, record.spec.category)
        self.assignment = assignment
        """Desired assignment, by rows of the node table."""
        self.progress = progress
        self.weights: dict[str, float] = {}
        """CPU shares in force, by control group."""
        self.reported_at = 0.0
        """Time of the last stored progress report."""
        self.noted_cpu_share = record.cpu_share
        """CPU share in the last event about it."""
        self.reason: Reason | None = None
        """Why it waits or changed, from the last round."""

    @property
    def wants_to_run(self) -> bool:
        return self.record.phase == ACTIVE and not self.record.deleting and not self.record.doomed


class JobStore:
    """Jobs by key and name, events by number."""

    def __init__(self, database: Database, slices: Slices, clock: Clock, rule: GrowthRule | None = None) -> None:
        self.database, self.slices, self.clock = database, slices, clock
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._changes = 0
        self._is_closed = False
        self.jobs: dict[int, LocalJob] = {}
        self.open: dict[int, LocalJob] = {}
        """Jobs that have not ended."""
        self.live: dict[int, LocalJob] = {}
        """Jobs that may have processes."""
        self._keys: dict[str, int] = {}
        self._reserved: set[str] = set()
        self._rows = slices.row_of
        self.events: deque[EventView] = deque(maxlen=_EVENTS)
        self.tracker = ProgressTracker(LearnedCurves(_read_learned(database)), rule)
        self._load()

    def _load(self) -> None:
        recent = self.database.read(
            "SELECT number, at, job, kind, sentence FROM events ORDER BY number DESC LIMIT ?", [_EVENTS]
        )
        self.events.extend(EventView(*row) for row in reversed(recent))
        self._changes = self.events[-1].number if self.events else 0
        self._next_key = 1 + (self.database.read("SELECT max(key) FROM jobs")[0][0] or 0)
        used = self.database.read("SELECT value FROM settings WHERE name = 'next_key'")
        self._next_key = max(self._next_key, int(used[0][0]) if used else 1)
        for (line,) in self.database.read("SELECT record FROM jobs ORDER BY key"):
            self._enter(decode_record(line))

    # Jobs.

    def next_keys(self, count: int) -> tuple[list[int], Statement]:
        """Return unused job keys, and the statement that reserves them for good, to be written with the jobs."""
        with self.lock:
            first, self._next_key = self._next_key, self._next_key + count
            sql = "INSERT OR REPLACE INTO settings VALUES ('next_key', ?)"
            return list(range(first, first + count)), (sql, [str(self._next_key).encode()])

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names for jobs about to be stored; raise UserError if one is taken."""
        with self.lock:
            wanted: set[str] = set()
            for name in names:
                if name in self._keys or name in self._reserved or name in wanted:
                    advice = f"choose another name, or delete it first: sterna delete {name}."
                    raise NameTakenError(f"There is a job '{name}' already; {advice}")
                wanted.add(name)
            self._reserved.update(wanted)

    def release(self, names: Iterable[str]) -> None:
        with self.lock:
            self._reserved.difference_update(names)

    def enter(self, record: JobRecord) -> LocalJob:
        """Add a job that is on disk."""
        with self.lock:
            self._reserved.discard(record.name)
            return self._enter(record)

    def _enter(self, record: JobRecord) -> LocalJob:
        progress = None
        if record.phase == ACTIVE:
            category = category_of(record.name, record.spec.category)
            progress = self.tracker.follow(record.key, record.spec.progress, category)
        assignment = Assignment(self._to_rows(record.workers), self._to_rows(record.servers), tuple(record.slots))
        is_lost = len(assignment.workers) < len(record.workers) or len(assignment.ps) < len(record.servers)
        if is_lost:  # the daemon was restarted with other nodes
            assignment, record.workers, record.servers, record.slots = NOWHERE, [], [], []
        job = LocalJob(record, shape_of(record.spec, self.slices), cores_of(record.spec), assignment, progress)
        self.jobs[record.key] = job
        self._keys[record.name] = record.key
        self.index(job)
        return job

    def index(self, job: LocalJob) -> None:
        """Update `open` and `live` for a job."""
        with self.lock:
            for index, belongs in ((self.open, job.record.phase == ACTIVE), (self.live, job.record.is_live)):
                if belongs:
                    index[job.key] = job
                else:
                    index.pop(job.key, None)

    def remove(self, job: LocalJob) -> None:
        """Remove a job that has ended and whose files are gone."""
        with self.lock:
            del self.jobs[job.key]
            self.open.pop(job.key, None)
            self.live.pop(job.key, None)
            del self._keys[job.name]
            self.tracker.forget(job.key)
            self.database.write_later(
                [
                    ("DELETE FROM jobs WHERE key = ?", [job.key]),
                    ("DELETE FROM progress WHERE job = ?", [job.key]),
                    ("DELETE FROM positions WHERE job = ?", [job.key]),
                ]
            )

    def find(self, name: str) -> LocalJob:
        key = self._keys.get(name)
        if key is None:
            raise NotFoundError(f"There is no job '{name}': {did_you_mean(name, self._keys)}")
        return self.jobs[key]

    def active(self) -> list[LocalJob]:
        """Return the jobs that want to run, in the order of their rows."""
        wanting = [job for job in self.open.values() if job.wants_to_run]
        return sorted(wanting, key=lambda job: (job.record.submitted_at, job.name))

    def assign(self, job: LocalJob, assignment: Assignment) -> None:
        """Set the desired assignment."""
        names = [node.name for node in self.slices.nodes]
        job.assignment = assignment
        job.record.workers = [(names[node], count) for node, count in assignment.workers]
        job.record.servers = [(names[node], count) for node, count in assignment.ps]
        job.record.slots = list(assignment.slots)

    def _to_rows(self, seats: NodeWorkers) -> tuple[tuple[int, int], ...]:
        return tuple((self._rows[name], count) for name, count in seats if name in self._rows)

    def set_reasons(self, reasons: Iterable[Reason]) -> None:
        """Keep why jobs wait or changed, from the last round."""
        with self.lock:
            for reason in reasons:
                key = self._keys.get(reason.job)
                if key is not None:
                    self.jobs[key].reason = reason

    def set_growth_rule(self, rule: GrowthRule) -> None:
        """Classify growth by another rule, also for stored reports."""
        with self.lock:
            self.database.flush()
            heard: list[tuple[int, int, list[ProgressReport]]] = []
            for key in self.open:
                by_attempt: dict[int, list[ProgressReport]] = {}
                for attempt, told in self.reports(key) if self.jobs[key].progress else ():
                    by_attempt.setdefault(attempt, []).append(told)
                heard += [(key, attempt, by_attempt[attempt]) for attempt in sorted(by_attempt)]
            self.tracker.set_growth_rule(rule, heard)

    # Saving.

    def statement(self, job: LocalJob) -> Statement:
        return insertion(job.record)

    def save_later(self, *jobs: LocalJob) -> None:
        with self.lock:
            self.database.write_later([self.statement(job) for job in jobs])
            self.notify_change()

    # Events.

    def note(self, job: str, kind: str, sentence: str) -> None:
        self.note_all([(job, kind, sentence)])

    def note_all(self, happened: Iterable[tuple[str, str, str]]) -> None:
        """Add several events: job, kind, sentence."""
        sql = "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)"
        with self.lock:
            last, now = self.events[-1].number if self.events else 0, self.clock()
            statements: list[Statement] = []
            for number, event in enumerate(happened, last + 1):
                job, kind, sentence = event
                self.events.append(EventView(number, now, job, kind, sentence))
                statements.append((sql, [number, now, job, kind, sentence]))
                _log.debug("%s", sentence, extra={"job": job or None})
            self.database.write_later(statements)
            self.notify_change()

    def notify_change(self) -> None:
        with self.lock:
            self._changes += 1
            self._changed.notify_all()

    @property
    def changes(self) -> int:
        return self._changes

    def changes_after(self, after: int) -> Iterator[int]:
        """Yield the number of the latest change after each change, and at every keep-alive interval."""
        while True:
            with self.lock:
                if self._changes <= after and not self._is_closed:
                    self._changed.wait(_LISTENING_SECONDS)
                if self._is_closed:
                    return
                after = self._changes
            yield after

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self._changed.notify_all()

    # Progress.

    def save_reports(self, job: LocalJob, attempt: int, reports: Iterable[ProgressReport]) -> None:
        rows = [[job.key, attempt, told.at, told.step, told.total, encode(told.metrics)] for told in reports]
        sql = "INSERT INTO progress (job, attempt, at, step, total, metrics) VALUES (?, ?, ?, ?, ?, ?)"
        self.database.write_later([(sql, row) for row in rows])

    def reports(self, key: int) -> list[tuple[int, ProgressReport]]:
        """Return the stored reports of a job, oldest first, with their attempts."""
        sql = "SELECT attempt, at, step, total, metrics FROM progress WHERE job = ? ORDER BY id"
        return [
            (attempt, ProgressReport(at, step, total, msgspec.json.decode(metrics)))
            for attempt, at, step, total, metrics in self.database.read(sql, [key])
        ]

    def save_positions(self, job: LocalJob, replica: str, paths: Positions) -> None:
        sql = "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)"
        self.database.write_later([(sql, [job.key, replica, encode(paths)])])

    def positions(self, job: LocalJob, replica: str) -> Positions:
        """Return how far the progress files of a replica have been read."""
        sql = "SELECT place FROM positions WHERE job = ? AND replica = ?"
        found = self.database.read(sql, [job.key, replica])
        return msgspec.json.decode(found[0][0], type=Positions) if found else {}

    def save_learned_curves(self) -> None:
        records = self.tracker.learned_curves.pop_unsaved()
        if records:
            sql = "INSERT OR REPLACE INTO learned VALUES (?, ?)"
            self.database.write_later([(sql, [record.category, encode(record)]) for record in records])

    def setting(self, name: str) -> Any:
        found = self.database.read("SELECT value FROM settings WHERE name = ?", [name])
        return msgspec.json.decode(found[0][0]) if found else None

    def save_setting(self, name: str, value: Any) -> None:
        """Save a setting; durable when this returns."""
        self.database.write([("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, encode(value)])])


def insertion(record: JobRecord) -> Statement:
    return "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", [record.key, record.name, encode(record)]


def _read_learned(database: Database) -> list[CategoryRecord]:
    decoder = msgspec.json.Decoder(CategoryRecord)
    return [decoder.decode(line) for (line,) in database.read("SELECT lesson FROM learned ORDER BY category")]


def shape_of(spec: JobSpec, slices: Slices) -> Shape:
    """Return the needs of one worker on these nodes.

    Replicas that are not scaled count as parameter servers, each as large as the largest of them. A worker without a
    CPU request counts as one core, or as `COUNTED_CPUS` on shared nodes; in Kubernetes manifests, where an absent
    request is 0, this holds only for workers without devices.
    """
    worker, kind = spec.worker, find_kind(spec.kind)
    is_own = kind is not None and kind.counts_absent_cpus
    others = [each for each in spec.replicas if each is not worker]
    default = COUNTED_CPUS if slices.is_shared else MILLI
    return Shape(
        worker.devices,
        worker.cpus or (default if is_own or not worker.devices else 0),
        worker.memory_bytes,
        sum(each.count for each in others),
        max((each.cpus or (default if is_own or slices.is_shared else 0) for each in others), default=0),
        max((each.memory_bytes for each in others), default=0),
    )


def cores_of(spec: JobSpec) -> float:
    """Return the cores that one worker can use: its request rounded up, at least one."""
    return float(max(1, -(-spec.worker.cpus // MILLI)))
