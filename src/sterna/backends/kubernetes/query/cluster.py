"""`KubernetesCluster`: the `ClusterService` of a Kubernetes cluster.

Reads and writes the objects directly, with the rights of the caller's credentials; the operator sees the changes and
acts on them. A job's name is `name`, `namespace/name` or `kind/name`. Rules are settings of the operator and progress
goes to the node's monitor, so neither can be set here.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sterna.backends.kubernetes.api.resources import EVENTS, ApiServer, Followed, Inbox
from sterna.backends.kubernetes.cache.object_parser import parse_object
from sterna.backends.kubernetes.cache.watched_resources import job_resources
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.query.explanation import explain_job, list_events
from sterna.backends.kubernetes.query.listing import (
    EventObject,
    JobListing,
    ListedJob,
    full_name,
    job_lists,
    match_jobs,
)
from sterna.backends.kubernetes.query.logs import Logs
from sterna.backends.kubernetes.query.nodes import ClusterNodes
from sterna.backends.kubernetes.query.reader import ApiReader, UnknownKindError
from sterna.backends.kubernetes.query.rules import current_rules
from sterna.backends.kubernetes.query.scaling import bounds_asked, bounds_patch
from sterna.backends.kubernetes.query.submit import ObjectCreator, documents_of
from sterna.backends.kubernetes.query.views import ANY_IMAGE, event_view, job_view, replica_name
from sterna.backends.kubernetes.query.watch import ClusterWatch
from sterna.errors import UserError, did_you_mean
from sterna.kinds.labels import MIGRATE_TO
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsing.documents import Document
from sterna.kinds.registry import job_kinds
from sterna.kinds.resource import PODS
from sterna.model.snapshot import JobKey, Snapshot
from sterna.service.errors import ForbiddenError, NotFoundError
from sterna.service.requests import RuleChanges, Submission, Submitted
from sterna.service.updates import KINDS as UPDATE_KINDS
from sterna.service.updates import Update, UpdateTracker
from sterna.service.views import (
    EventView,
    Explanation,
    JobView,
    LogPart,
    NodeView,
    PolicyView,
    ProgressView,
    StartingChange,
)
from sterna.settings import DEFAULT_POLICY

if TYPE_CHECKING:
    from sterna.backends.kubernetes.query.observer import Observer

FindStartingChanges = Callable[[Snapshot, JobKey, PolicyView], list[StartingChange]]
"""Finds the changes that would start a waiting job."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_LABEL = 63
_MOST_NAMES = 20
_FRESH_SECONDS = 1.0
"""Cache TTL of a job found by name: `sterna logs -f` asks several times a second."""


class QueryScope(NamedTuple):
    """The namespaces in which jobs are looked for."""

    namespace: str = "default"
    is_everywhere: bool = False
    context: str = ""

    @property
    def searched(self) -> str:
        """The namespace to list; empty: all."""
        return "" if self.is_everywhere else self.namespace


class KubernetesCluster:
    """Implements `ClusterService` for one kubeconfig context."""

    def __init__(
        self,
        connect: Callable[[], ApiServer],
        scope: QueryScope,
        find_starting_changes: FindStartingChanges,
        clock: Callable[[], float] = time.time,
        inbox: Callable[[], Inbox] = Inbox,
        on_notice: Callable[[str], None] = lambda notice: None,
    ) -> None:
        """`connect` opens a connection: one for requests, one for each watch. `on_notice` receives a sentence about
        every kind of job that a list leaves out because the caller may not see it."""
        self._connect, self._clock, self._inbox, self._on_notice = connect, clock, inbox, on_notice
        self._scope, self._find_starting_changes = scope, find_starting_changes
        self._connections: list[ApiServer] = []
        self._reader = ApiReader(self._open(), scope.context)
        self._logs = Logs(self._reader)
        self._nodes = ClusterNodes(self._reader, self._observe)
        self._creator = ObjectCreator(self._reader, scope.namespace, self._view)
        self._recent: dict[str, tuple[float, ListedJob]] = {}

    def _open(self) -> ApiServer:
        server = self._connect()
        self._connections.append(server)
        return server

    def close(self) -> None:
        while self._connections:
            self._connections.pop().close()

    def _observe(self) -> Observer:
        from sterna.backends.kubernetes.query.observer import Observer  # imports the whole backend

        return Observer(self._open(), self._inbox(), self._clock)

    # Jobs.

    def jobs(self) -> list[JobView]:
        return self._views(self._list(self._scope.searched))

    def _views(self, listing: JobListing) -> list[JobView]:
        now = self._clock()
        return [job_view(job, now, self._scope.is_everywhere) for job in listing.jobs()]

    def job(self, name: str) -> JobView:
        return self._view(self._find(name))

    def _view(self, job: ListedJob) -> JobView:
        return job_view(job, self._clock(), self._scope.is_everywhere)

    def _list(self, namespace: str, name: str = "") -> JobListing:
        """List the jobs of a namespace (all if empty) with their pods, or those of one name."""
        followed = job_lists(namespace, name)
        answers = self._reader.run_together([partial(self._reader.list_all, each) for each in followed])
        listing = JobListing()
        refused: list[UserError] = []
        for each, answer in zip(followed, answers, strict=True):
            if isinstance(answer, UserError):
                if each.resource == PODS or not isinstance(answer, UnknownKindError | ForbiddenError):
                    raise answer
                refused.append(answer)
                continue
            for seen in answer:
                listing.add(each.resource, seen)
        forbidden = [error for error in refused if isinstance(error, ForbiddenError)]
        if len(refused) == len(job_resources()):
            raise (forbidden or refused)[0]
        for error in forbidden:
            self._on_notice(str(error))
        return listing

    def _find(self, text: str, is_recent: bool = False) -> ListedJob:
        """Return the one job that a name means."""
        known = self._recent.get(text)
        if is_recent and known is not None and self._clock() - known[0] < _FRESH_SECONDS:
            return known[1]
        *marks, name = text.split("/")
        words = {word for kind in job_kinds() for word in (kind.name.lower(), kind.resource.plural)}
        places = [mark for mark in marks if mark.lower() not in words]
        namespace = places[0] if places else self._scope.searched
        if not all(map(_NAME.fullmatch, (name, *places))):
            raise NotFoundError(f"There is no job '{text[:80]}'; see the names with: sterna get jobs.")
        listing = self._list(namespace, name if len(name) <= _LONGEST_LABEL else "")
        found = match_jobs(listing.jobs(), text)
        if len(found) > 1:
            raise UserError(f"'{text}' may be several jobs; name one of: {', '.join(map(full_name, found))}.")
        if not found:
            raise self._missing(text, name, namespace)
        self._recent[text] = self._clock(), found[0]
        return found[0]

    def _missing(self, text: str, name: str, namespace: str) -> UserError:
        names = {job.meta.name for job in self._list(namespace).jobs()}
        hint = did_you_mean(name, names)
        if len(names) > _MOST_NAMES and not hint.startswith("did"):
            hint = "see the names with: sterna get jobs."
        where = f" in the namespace '{namespace}'" if namespace else ""
        return NotFoundError(f"There is no job '{text}'{where}: {hint}")

    # Changes to jobs.

    def submit(self, submission: Submission) -> Submitted:
        return self.create_documents(documents_of(submission), submission.key)

    def create_documents(self, documents: Sequence[Document], key: str = "") -> Submitted:
        """Create every job of these manifests, or none; see `ObjectCreator`."""
        return self._creator.create(documents, key, self._clock())

    def delete(self, names: Sequence[str]) -> list[JobView]:
        jobs = {job.meta.uid: job for job in (self._find(name) for name in dict.fromkeys(names))}
        deleted: list[JobView] = []
        for job in jobs.values():
            self._reader.delete(job.resource, job.meta.namespace, job.meta.name, job.meta.uid)
            view = self._view(job)
            view.state = "deleting"
            deleted.append(view)
        return deleted

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView:
        job = self._active(name)
        parsed_job, problem = parse_object(job.object, job.resource, ANY_IMAGE)
        if problem is not None:
            raise UserError(f"Job '{name}' cannot be scaled, because it cannot be run: {problem.sentence}")
        if isinstance(job.object, Pod):
            raise UserError(f"Job '{name}' is a pod, which is one worker and stays one.")
        low, high = bounds_asked(parsed_job, minimum, maximum)
        patch = bounds_patch(job.object, parsed_job, low, high)
        where = job.resource, job.meta.namespace, job.meta.name
        tried = msgspec.json.decode(self._reader.patch(*where, patch, is_dry_run=True), type=JobObject)
        _, problem = parse_object(tried, job.resource, ANY_IMAGE)
        if problem is not None:
            raise UserError(f"Job '{name}' cannot have {low} to {high} workers: {problem.sentence}")
        changed = msgspec.json.decode(self._reader.patch(*where, patch), type=JobObject)
        return self._view(ListedJob(job.resource, changed, job.pods))

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView:
        """Request a move by annotation; the operator creates new pods on the node. A caller who may list all nodes and
        pods learns at once if the move is not possible."""
        job = self._active(name)
        with suppress(ForbiddenError):  # then only the operator can check it
            self._observe().check_move(job.meta.uid, node)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        patch = {"metadata": {"uid": job.meta.uid, "annotations": {MIGRATE_TO: f"{node} {moment}"}}}
        self._reader.patch(job.resource, job.meta.namespace, job.meta.name, patch)
        return self._view(job)

    def _active(self, name: str) -> ListedJob:
        job = self._find(name)
        state = self._view(job).state
        if state in ("deleting", "completed", "failed"):
            is_so = "is being deleted" if state == "deleting" else f"has {state}"
            raise UserError(f"Job '{name}' {is_so}, so that it cannot be changed; submit it again under another name.")
        return job

    # Nodes.

    def nodes(self) -> list[NodeView]:
        return self._nodes.views()

    def node(self, name: str) -> NodeView:
        views = {view.name: view for view in self.nodes()}
        if name not in views:
            raise NotFoundError(f"There is no node '{name}': {did_you_mean(name, views)}")
        return views[name]

    def cordon(self, name: str) -> NodeView:
        return self._nodes.cordon(name)

    def drain(self, name: str) -> NodeView:
        return self._nodes.drain(name)

    def uncordon(self, name: str) -> NodeView:
        return self._nodes.uncordon(name)

    # Events, logs, explanations.

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        listing = JobListing()
        if job:
            found = self._find(job, is_recent=True)
            listing.add(found.resource, found.object)
            namespace, fields = found.meta.namespace, f"regarding.name={found.meta.name}"
        else:
            namespace, fields = self._scope.searched, ""
            listing = self._list(namespace)
        for event in self._reader.list_all(Followed(EVENTS, EventObject, namespace, fields=fields)):
            if not job or event.regarding.uid == found.meta.uid:
                listing.add(EVENTS, event)
        views = [event for event in self._event_views(listing) if event.number > after]
        return views[-limit:] if limit and not after else views[: max(0, limit)]

    def _event_views(self, listing: JobListing) -> list[EventView]:
        return [event_view(event, self._scope.is_everywhere) for event in listing.events()]

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = 1 << 20) -> LogPart:
        job = self._find(name, is_recent=True)
        pods = {replica_name(pod_row(pod)): pod for pod in job.pods}
        if not pods:
            view = self._view(job)
            raise UserError(f"Job '{name}' has no pods now, so that it has no log; {view.reason or 'it waits.'}")
        names = [each.name for each in self._view(job).replicas]
        if replica and replica not in pods:
            raise UserError(f"Job '{name}' has no replica '{replica}': {did_you_mean(replica, names)}")
        chosen = replica or names[0]
        return self._logs.read(pods[chosen], (job.meta.uid, chosen), offset, limit)

    def explain(self, name: str) -> Explanation:
        job = self._find(name)
        view, now = self._view(job), self._clock()
        current = current_rules(self._reader, now)
        explanation = explain_job(view, list_events(view, self.events(name), now), current.rules, now)
        if current.notice:
            explanation.notices.append(current.notice)
        if view.state == "waiting":
            try:
                observer = self._observe()
                entry = observer.entry(view.uid)
                if entry is not None and entry.wants_to_run:
                    key = JobKey(entry.key)
                    explanation.changes = self._find_starting_changes(observer.snapshot(), key, current.rules)
            except ForbiddenError as error:
                explanation.notices.append(f"What would start it cannot be told. {error}")
        return explanation

    def history(self, name: str) -> list[ProgressView]:
        """The last report: a cluster keeps no more."""
        job = self.job(name)
        if job.step is None:
            return []
        metrics = {job.metric: job.value} if job.metric else {}
        return [ProgressView(self._clock(), job.attempt, job.step, job.total, metrics)]

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        raise UserError("Jobs of a cluster report to the monitor of their node: POST /monitor on its port 8081.")

    def watch(self, kinds: Collection[str] = UPDATE_KINDS, until: float = math.inf) -> Iterator[Update]:
        tracker = UpdateTracker(ignores_elapsed_time=True)
        if "rules" in kinds:
            yield from tracker.compare_rules(self._rules_or_none())
        observer = self._observe() if "nodes" in kinds else None
        watch = ClusterWatch(self._open(), self._inbox(), self._scope.searched)
        for has_changed in watch.wait_for_changes(until):
            if observer is not None:
                observer.refresh()
                yield from tracker.compare_nodes(observer.nodes())
            if has_changed and "jobs" in kinds:
                yield from tracker.compare_jobs(self._views(watch.listing))
            if has_changed and "events" in kinds:
                yield from tracker.compare_events(self._event_views(watch.listing))

    # Rules.

    def rules(self) -> PolicyView:
        current = current_rules(self._reader, self._clock())
        if current.notice:
            raise UserError(current.notice)
        return current.rules

    def _rules_or_none(self) -> PolicyView | None:
        current = current_rules(self._reader, self._clock())
        return None if current.notice else current.rules

    def set_rules(self, changes: RuleChanges) -> PolicyView:
        named = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
        name, value = next(iter(named.items()), ("policy", DEFAULT_POLICY))
        raise UserError(
            "The rules of a cluster are settings of its operator; change them where it is installed, for example with: "
            f"helm upgrade sterna deploy/chart/sterna --reuse-values --set operator.{_camel(name)}={value}."
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
