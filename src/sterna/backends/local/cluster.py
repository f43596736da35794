"""`LocalCluster`: the `ClusterService` of the local backend.

Thread-safe. A change is validated and durable when its verb returns; the round loop is woken and carries it out.
Results are made from the job store, so that no verb waits for the loop.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.jobs.validation import JobValidator
from sterna.backends.local.manual_moves import evict_jobs, find_move
from sterna.backends.local.store.job_store import LocalJob
from sterna.backends.local.store.journal import write_journal
from sterna.backends.local.store.records import ACTIVE, JobRecord, ReplicaRecord, encode
from sterna.backends.local.submission import read_submission
from sterna.backends.local.submit import JobSubmitter, Order
from sterna.backends.local.views import job_view, node_views
from sterna.control.progress_tracker import ProgressReport
from sterna.engine.decide import Rules
from sterna.errors import UserError, did_you_mean
from sterna.model.cluster import NOWHERE
from sterna.model.job import JobSpec, Resizing
from sterna.service.errors import NotFoundError
from sterna.service.requests import RuleChanges, Submission, Submitted
from sterna.service.updates import KINDS, Update, UpdateTracker
from sterna.service.views import EventView, Explanation, JobView, LogPart, NodeView, PolicyView, ProgressView
from sterna.wiring import preferred_placement

ExplainJob = Callable[[Path, JobView, Sequence[EventView], float], Explanation]
"""Explains one job from a journal file, its present state, its events, and the present time."""
MakeRules = Callable[[PolicyView], Rules]

_LONGEST_LOG = 16 << 20
_WATCH_SECONDS = 0.25
"""Least time between two updates of a watch; changes in between are merged."""


class LocalCluster:
    """Implements `ClusterService` for one backend."""

    def __init__(self, backend: LocalBackend, rules: PolicyView, make_rules: MakeRules, explain: ExplainJob) -> None:
        self._backend, self._store = backend, backend.store
        self._make_rules, self._explain_job = make_rules, explain
        self._view = rules
        self.rules_in_force = make_rules(rules)
        self._validator = JobValidator(backend.store.slices)
        self._creating = JobSubmitter(backend, self._validator)

    # Jobs.

    def create(self, specs: Sequence[JobSpec], key: str = "") -> list[JobView]:
        (answer,) = self.create_each([(specs, key)])
        if isinstance(answer, UserError):
            raise answer
        return answer

    def create_each(self, orders: Sequence[Order]) -> list[list[JobView] | UserError]:
        """Create several orders with one flush of the disk; for each, what `create` returns or raises."""
        return self._creating.create_each(orders)

    def submit(self, submission: Submission) -> Submitted:
        (outcome,) = self.submit_each([submission])
        if isinstance(outcome, UserError):
            raise outcome
        return outcome

    def submit_each(self, submissions: Sequence[Submission]) -> list[Submitted | UserError]:
        """Store several submissions with one flush of the disk; for each, what `submit` returns or raises."""
        outcomes: dict[int, Submitted | UserError] = {}
        orders: dict[int, Order] = {}
        notices: dict[int, list[str]] = {}
        for place, submission in enumerate(submissions):
            try:
                specs, notices[place] = read_submission(submission)
            except UserError as error:
                outcomes[place] = error
                continue
            if specs:
                orders[place] = specs, submission.key
            else:
                outcomes[place] = Submitted([], notices[place])
        for place, created in zip(orders, self.create_each(list(orders.values())), strict=True):
            outcomes[place] = Submitted(created, notices[place]) if isinstance(created, list) else created
        return [outcomes[place] for place in range(len(submissions))]

    def jobs(self) -> list[JobView]:
        with self._store.lock:
            ordered = sorted(self._store.jobs.values(), key=lambda job: (job.record.submitted_at, job.name))
            return [job_view(self._backend, job) for job in ordered]

    def job(self, name: str) -> JobView:
        with self._store.lock:
            return job_view(self._backend, self._store.find(name))

    def delete(self, names: Sequence[str]) -> list[JobView]:
        with self._store.lock:
            jobs = [self._store.find(name) for name in dict.fromkeys(names)]
            for job in jobs:
                job.record.deleting = True
                self._store.assign(job, NOWHERE)
            views = [job_view(self._backend, job) for job in jobs]
            statements = [self._store.statement(job) for job in jobs]
        self._store.database.write(statements)
        for job in jobs:
            if not job.record.is_live:
                self._backend.exits.forget(job)
            else:
                self._store.note(job.name, "deleting", "is being deleted: it is asked to stop.")
        self._backend.wake()
        return views

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView:
        with self._store.lock:
            job = self._active(name)
            record = job.record
            low = record.minimum if minimum is None else minimum
            high = max(record.maximum, low) if maximum is None else maximum
            if maximum is not None and minimum is None:
                low = min(low, high)
            if record.spec.resizing is Resizing.NONE and low != high:
                raise UserError(
                    f"Job '{name}' cannot resize, so that it takes one number of workers; give that, or submit it "
                    "again with --resizing."
                )
            spec = replace(record.spec, minimum=low, maximum=high, request=_between(record, low, high))
            self._validator.admit(spec)
            record.minimum, record.maximum, record.spec = low, high, spec
            statement = self._store.statement(job)
        self._store.database.write([statement])
        self._store.note(name, "scaled", f"may have {low} to {high} workers from now on.")
        self._backend.wake()
        return self.job(name)

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView:
        self._row(node)
        with self._store.lock:
            job = self._active(name)
            assignment = find_move(self._backend, job, node)
            job.record.note_move(job.assignment, assignment, self._store.clock(), self._store.slices.names)
            job.record.by_checkpoint = by_checkpoint
            self._store.assign(job, assignment)
            statement = self._store.statement(job)
        self._store.database.write([statement])
        self._backend.wake()
        return self.job(name)

    def _active(self, name: str) -> LocalJob:
        job = self._store.find(name)
        if job.record.phase != ACTIVE or job.record.deleting:
            state = "is being deleted" if job.record.deleting else f"has {job.record.phase}"
            raise UserError(f"Job '{name}' {state}, so that it cannot be changed; submit it again under another name.")
        return job

    # Nodes.

    def nodes(self) -> list[NodeView]:
        with self._store.lock:
            return node_views(self._backend)

    def node(self, name: str) -> NodeView:
        row = self._row(name)
        return self.nodes()[row]

    def cordon(self, name: str) -> NodeView:
        return self._close(name, is_open=False)

    def drain(self, name: str) -> NodeView:
        return self._close(name, is_open=False, drain=True)

    def uncordon(self, name: str) -> NodeView:
        return self._close(name, is_open=True)

    def _close(self, node: str, is_open: bool, drain: bool = False) -> NodeView:
        row = self._row(node)
        backend = self._backend
        with self._store.lock:
            closed = {name: state for name, state in backend.closed.items() if name != node}
            if not is_open:
                closed[node] = "draining" if drain else "cordoned"
            backend.closed = closed
            moved = evict_jobs(backend, row) if drain and not is_open else []
            statements = [self._store.statement(job) for job in moved]
            statements.append(("INSERT OR REPLACE INTO settings VALUES ('closed', ?)", [encode(closed)]))
        self._store.database.write(statements)
        word = "takes jobs again" if is_open else ("is drained" if drain else "takes no new jobs")
        self._store.note("", "node", f"{node} {word}.")
        backend.wake()
        return self.nodes()[row]

    def _row(self, node: str) -> int:
        rows = self._store.slices.row_of
        if node not in rows:
            raise NotFoundError(f"There is no node '{node}': {did_you_mean(node, rows)}")
        return rows[node]

    # Events and logs.

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        limit = max(0, limit)
        with self._store.lock:
            kept = list(self._store.events)
        if job and not any(event.job == job for event in kept):
            self._store.find(job)
        if not kept or kept[0].number <= after + 1:
            found = [event for event in kept if event.number > after and (not job or event.job == job)]
            return found[-limit:] if limit and not after else found[:limit]
        return self._old_events(job, after, limit)

    def _old_events(self, job: str, after: int, limit: int) -> list[EventView]:
        self._store.database.flush()
        order = "ASC" if after else "DESC"
        sql = (
            "SELECT number, at, job, kind, sentence FROM events WHERE number > ? AND (? = '' OR job = ?) "
            f"ORDER BY number {order} LIMIT ?"
        )
        found = [EventView(*row) for row in self._store.database.read(sql, [after, job, job, limit])]
        return sorted(found, key=lambda event: event.number)

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = 1 << 20) -> LogPart:
        with self._store.lock:
            job = self._store.find(name)
            attempt = job.record.attempt
            if attempt is None:
                raise UserError(f"Job '{name}' has not started yet, so that it has no log; {job.record.reason}")
            chosen = _find_replica(name, attempt.replicas, replica)
            path = self._backend.deps.environment.paths.replica(name, attempt.number, chosen.name) / "out.log"
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                start = max(0, size + offset) if offset < 0 else offset if offset <= size else 0
                file.seek(start)
                part = file.read(max(0, min(limit, _LONGEST_LOG)))
        except FileNotFoundError:
            return LogPart(b"", 0)
        return LogPart(part, start + len(part))

    def explain(self, name: str) -> Explanation:
        job, events = self.job(name), self.events(name)
        path = self._backend.deps.environment.paths.state / f".journal-{threading.get_ident()}.jsonl"
        try:
            if not write_journal(self._store.database, self._view, path):
                raise UserError(f"Nothing has been decided yet that job '{name}' took part in; ask again in a moment.")
            return self._explain_job(path, job, events, self._store.clock())
        finally:
            path.unlink(missing_ok=True)

    def history(self, name: str) -> list[ProgressView]:
        with self._store.lock:
            key = self._store.find(name).key
        self._store.database.flush()
        return [
            ProgressView(report.at, attempt, report.step, report.total, dict(report.metrics))
            for attempt, report in self._store.reports(key)
        ]

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        with self._store.lock:
            job = self._store.find(name)
            news = self._backend.watcher.add_reports(
                job, [ProgressReport(self._store.clock(), step, total, dict(metrics))]
            )
        if news:
            self._backend.wake()

    def watch(self, kinds: Collection[str] = KINDS, until: float = math.inf) -> Iterator[Update]:
        tracker = UpdateTracker()
        yield from self._updates(tracker, kinds)
        for _ in self._store.changes_after(0):
            if time.monotonic() >= until:
                return
            time.sleep(_WATCH_SECONDS)
            yield from self._updates(tracker, kinds)

    def _updates(self, tracker: UpdateTracker, kinds: Collection[str]) -> Iterator[Update]:
        if "jobs" in kinds:
            yield from tracker.compare_jobs(self.jobs())
        if "nodes" in kinds:
            yield from tracker.compare_nodes(self.nodes())
        if "rules" in kinds:
            yield from tracker.compare_rules(self.rules())
        if "events" in kinds:
            yield from tracker.compare_events(self.events(after=tracker.last_event))

    # Rules.

    def rules(self) -> PolicyView:
        return self._view

    def set_rules(self, changes: RuleChanges) -> PolicyView:
        changed = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
        if changes.policy is not None:
            changed.setdefault("placement", preferred_placement(changes.policy))
        if not 0 <= changed.get("rate_limit_seconds", 0.0) < 86400:
            raise UserError(
                f"A rate limit of '{changes.rate_limit_seconds}' is not possible; give seconds from 0 to 86,400."
            )
        view = msgspec.structs.replace(self._view, **changed)
        made = self._make_rules(view)
        self._store.save_setting("rules", view)
        with self._store.lock:
            self._view, self.rules_in_force = view, made
        self._store.note("", "rules", f"decides by {view.policy} and {view.placement} from now on.")
        self._backend.wake()
        return view


def _find_replica(name: str, replicas: Sequence[ReplicaRecord], wanted: str) -> ReplicaRecord:
    """Return the replica of that name; without a name, the first in rank."""
    names = [each.name for each in replicas]
    if wanted and wanted not in names:
        raise UserError(f"Job '{name}' has no replica '{wanted}': {did_you_mean(wanted, names)}")
    return next(each for each in replicas if each.name == (wanted or names[0]))


def _between(record: JobRecord, low: int, high: int) -> int:
    return min(max(record.spec.request, low), high)
