"""A Kubernetes cluster as it is asked: every verb of `control/verbs`, by whoever has a kubeconfig.

No operator is asked: what is known of jobs is in their objects, so they are read and written directly, with the rights
of whoever asks: the server refuses what they may not. The operator sees the changes and acts on them. Names are `name`,
`namespace/name` or `kind/name`. Rules are the operator's settings, and progress is reported to it: neither is set here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sterna.backends.kubernetes.api.operator_rules import OperatorRules
from sterna.backends.kubernetes.api.resources import EVENTS, ApiServer, Followed, Inbox
from sterna.backends.kubernetes.cache.object_parser import parsed_job_in
from sterna.backends.kubernetes.cache.watched_resources import JOB_KINDS
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.query.listing import (
    KINDS,
    EventObject,
    SeenJob,
    Sightings,
    followed_jobs,
    full_name,
    named,
)
from sterna.backends.kubernetes.query.logs import Logs
from sterna.backends.kubernetes.query.manifests import SUBMISSION, Order, orders_of
from sterna.backends.kubernetes.query.nodes import ClusterNodes
from sterna.backends.kubernetes.query.reader import (
    ApiReader,
    NotAllowedError,
    NotThereError,
    TakenError,
    UnknownKindError,
)
from sterna.backends.kubernetes.query.rules import rules_in
from sterna.backends.kubernetes.query.scaling import bounds_asked, bounds_patch
from sterna.backends.kubernetes.query.story import explanation, story_of
from sterna.backends.kubernetes.query.views import ANY_IMAGE, ClusterJob, event_view, job_view, replica_name
from sterna.backends.kubernetes.query.watch import Watching
from sterna.control.cluster_service import EventView, JobView, NodeView, PolicyView
from sterna.errors import Retry, UserError, did_you_mean
from sterna.kinds.labels import MIGRATE_TO
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsing.documents import Document
from sterna.kinds.resource import PODS
from sterna.model.job import JobSpec
from sterna.model.snapshot import JobKey, Snapshot

if TYPE_CHECKING:
    from sterna.backends.kubernetes.query.observer import Observer

Starts = Callable[[Snapshot, JobKey, OperatorRules], list[dict[str, object]]]
"""What would start a job that waits, as `sterna explain` tells it."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_LABEL = 63
_MOST_NAMES = 20
_FRESH_SECONDS = 1.0
"""For so long what was found under a name is found there again: whoever follows a log asks several times a second."""
_MARKS = frozenset(word for kind in KINDS for word in (kind.kind.lower(), kind.plural))


class Place(NamedTuple):
    """Where jobs are looked for."""

    namespace: str = "default"
    is_everywhere: bool = False
    context: str = ""

    @property
    def searched(self) -> str:
        return "" if self.is_everywhere else self.namespace


class KubernetesCluster:
    """Implements `Verbs`."""

    def __init__(
        self,
        connect: Callable[[], ApiServer],
        place: Place,
        starts: Starts,
        clock: Callable[[], float] = time.time,
        inbox: Callable[[], Inbox] = Inbox,
    ) -> None:
        """`connect` opens a connection; one asks, others follow."""
        self._connect, self._clock, self._inbox = connect, clock, inbox
        self._place, self._starts = place, starts
        self._opened: list[ApiServer] = []
        self._asking = ApiReader(self._open(), place.context)
        self._logs = Logs(self._asking)
        self._nodes = ClusterNodes(self._asking, self.onlooker)
        self._recent: dict[str, tuple[float, SeenJob]] = {}
        self.notices: list[str] = []
        """What was left out of an answer, and why."""

    def _open(self) -> ApiServer:
        server = self._connect()
        self._opened.append(server)
        return server

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def onlooker(self) -> Observer:
        from sterna.backends.kubernetes.query.observer import Observer  # all of the operator, which few questions need

        return Observer(self._open(), self._inbox(), self._clock)

    def watching(self) -> Watching:
        return Watching(self._open(), self._inbox(), self._place.searched)

    # Jobs.

    def jobs(self) -> list[JobView]:
        return list(self.views(self._look(self._place.searched)))

    def views(self, sightings: Sightings) -> list[ClusterJob]:
        now = self._clock()
        return [job_view(job, now, self._place.is_everywhere) for job in sightings.jobs()]

    def job(self, name: str) -> ClusterJob:
        return self._view(self._find(name))

    def _view(self, job: SeenJob) -> ClusterJob:
        return job_view(job, self._clock(), self._place.is_everywhere)

    def _look(self, namespace: str, name: str = "") -> Sightings:
        """Everything about jobs, or about those of one name."""
        followed = followed_jobs(namespace, name)
        answers = self._asking.together([partial(self._asking.listed, each) for each in followed])
        sightings = Sightings()
        refused: list[UserError] = []
        for each, answer in zip(followed, answers, strict=True):
            if isinstance(answer, UserError):
                if each.resource == PODS or not isinstance(answer, UnknownKindError | NotAllowedError):
                    raise answer
                refused.append(answer)
                continue
            for seen in answer:
                sightings.see(each.resource, seen)
        forbidden = [error for error in refused if isinstance(error, NotAllowedError)]
        if len(refused) == len(JOB_KINDS):
            raise (forbidden or refused)[0]
        self.notices = list(map(str, forbidden))
        return sightings

    def _find(self, text: str, is_recent: bool = False) -> SeenJob:
        """The one job that a name means."""
        known = self._recent.get(text)
        if is_recent and known is not None and self._clock() - known[0] < _FRESH_SECONDS:
            return known[1]
        *marks, name = text.split("/")
        places = [mark for mark in marks if mark.lower() not in _MARKS]
        namespace = places[0] if places else self._place.searched
        if not all(map(_NAME.fullmatch, (name, *places))):
            raise UserError(f"There is no job '{text[:80]}'; see the names with: sterna get jobs.")
        sightings = self._look(namespace, name if len(name) <= _LONGEST_LABEL else "")
        found = named(sightings.jobs(), text)
        if len(found) > 1:
            raise UserError(f"'{text}' may be several jobs; name one of: {', '.join(map(full_name, found))}.")
        if not found:
            raise self._missing(text, name, namespace)
        self._recent[text] = self._clock(), found[0]
        return found[0]

    def _missing(self, text: str, name: str, namespace: str) -> UserError:
        names = {job.meta.name for job in self._look(namespace).jobs()}
        hint = did_you_mean(name, names)
        if len(names) > _MOST_NAMES and not hint.startswith("did"):
            hint = "see the names with: sterna get jobs."
        where = f" in the namespace '{namespace}'" if namespace else ""
        return NotThereError(f"There is no job '{text}'{where}: {hint}")

    # Changes to jobs.

    def create(self, specs: Sequence[JobSpec], key: str = "") -> list[JobView]:
        raise UserError("Jobs of a cluster are made from manifests, which name their images; give a manifest.")

    def create_documents(self, documents: Sequence[Document], key: str = "") -> tuple[list[JobView], list[str]]:
        """Every job of these manifests, and what was left out of them. All are tried before any is made, so that one
        that is refused refuses all; only what happens between the two can leave some made and some not."""
        orders, notices = orders_of(documents, self._place.namespace, key, self._clock())
        orders = [self._rehearsed(order, key) for order in orders]
        made: list[JobView] = []
        for order in orders:
            try:
                made.append(self._create(order, key))
            except (UserError, Retry) as error:
                if not made:
                    raise
                names = ", ".join(job.name for job in made)
                raise type(error)(f"{str(error).removesuffix('.')}; created before that: {names}.") from None
        return made, notices

    def _rehearsed(self, order: Order, key: str) -> Order:
        """The order, under another of its names where the first is taken."""
        try:
            self._asking.create(order.resource, order.namespace, order.document, is_rehearsal=True)
        except TakenError:
            if key and self._is_ours(order, key):
                return order
            further = order.renamed()
            if further is None:
                raise
            return self._rehearsed(further, key)
        except UserError as error:
            raise type(error)(f"{order.where}: {error}") from None
        return order

    def _create(self, order: Order, key: str) -> ClusterJob:
        resource, namespace = order.resource, order.namespace
        type_: type[JobObject] | type[Pod] = Pod if resource == PODS else JobObject
        try:
            body = self._asking.create(resource, namespace, order.document)
            seen = msgspec.json.decode(body, type=type_)
        except (TakenError, Retry) as error:
            if not (key and order.name and self._is_ours(order, key)):
                further = order.renamed() if isinstance(error, TakenError) else None
                if further is None:
                    raise
                return self._create(further, key)  # somebody was quicker
            seen = self._asking.found(resource, type_, namespace, order.name)  # the answer was lost, the job was not
        return self._view(SeenJob(resource, seen, [seen] if isinstance(seen, Pod) else []))

    def _is_ours(self, order: Order, key: str) -> bool:
        """Whether what has this name was made by the same submission."""
        try:
            found = self._asking.found(order.resource, JobObject, order.namespace, order.name)
        except NotThereError:
            return False
        return found.metadata.annotations.get(SUBMISSION) == key

    def delete(self, names: Sequence[str]) -> list[JobView]:
        jobs = {job.meta.uid: job for job in (self._find(name) for name in dict.fromkeys(names))}
        deleted: list[JobView] = []
        for job in jobs.values():
            self._asking.delete(job.resource, job.meta.namespace, job.meta.name, job.meta.uid)
            view = self._view(job)
            view.state = "deleting"
            deleted.append(view)
        return deleted

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView:
        job = self._active(name)
        parsed_job, problem = parsed_job_in(job.object, job.resource, ANY_IMAGE)
        if problem is not None:
            raise UserError(f"Job '{name}' cannot be scaled, because it cannot be run: {problem.sentence}")
        if isinstance(job.object, Pod):
            raise UserError(f"Job '{name}' is a pod, which is one worker and stays one.")
        low, high = bounds_asked(parsed_job, minimum, maximum)
        patch = bounds_patch(job.object, parsed_job, low, high)
        where = job.resource, job.meta.namespace, job.meta.name
        tried = msgspec.json.decode(self._asking.patch(*where, patch, is_rehearsal=True), type=JobObject)
        _, problem = parsed_job_in(tried, job.resource, ANY_IMAGE)
        if problem is not None:
            raise UserError(f"Job '{name}' cannot have {low} to {high} workers: {problem.sentence}")
        changed = msgspec.json.decode(self._asking.patch(*where, patch), type=JobObject)
        return self._view(SeenJob(job.resource, changed, job.pods))

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView:
        """Pods are always made anew where they go; whoever may see all nodes is told at once if it is not possible."""
        job = self._active(name)
        with suppress(NotAllowedError):  # then the operator alone can say
            self.onlooker().check_move(job.meta.uid, node)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        patch = {"metadata": {"uid": job.meta.uid, "annotations": {MIGRATE_TO: f"{node} {moment}"}}}
        self._asking.patch(job.resource, job.meta.namespace, job.meta.name, patch)
        return self._view(job)

    def _active(self, name: str) -> SeenJob:
        job = self._find(name)
        state = self._view(job).state
        if state in ("deleting", "completed", "failed"):
            is_so = "is being deleted" if state == "deleting" else f"has {state}"
            raise UserError(f"Job '{name}' {is_so}, so that it cannot be changed; submit it again under another name.")
        return job

    # Nodes.

    def nodes(self) -> list[NodeView]:
        return self._nodes.views()

    def cordon(self, node: str, is_open: bool, drain: bool = False) -> NodeView:
        return self._nodes.cordon(node, is_open, drain)

    # What happened.

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        sightings = Sightings()
        if job:
            found = self._find(job, is_recent=True)
            sightings.see(found.resource, found.object)
            namespace, fields = found.meta.namespace, f"regarding.name={found.meta.name}"
        else:
            namespace, fields = self._place.searched, ""
            sightings = self._look(namespace)
        for event in self._asking.listed(Followed(EVENTS, EventObject, namespace, fields=fields)):
            if not job or event.regarding.uid == found.meta.uid:
                sightings.see(EVENTS, event)
        told = [event for event in self.event_views(sightings) if event.number > after]
        return told[-limit:] if limit and not after else told[: max(0, limit)]

    def event_views(self, sightings: Sightings) -> list[EventView]:
        return [event_view(event, self._place.is_everywhere) for event in sightings.events()]

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
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

    def explain(self, name: str) -> dict[str, object]:
        job = self._find(name)
        view, now = self._view(job), self._clock()
        told = rules_in(self._asking, now)
        story = story_of(view, self.events(name), now)
        answer = explanation(view, story, told.rules, now)
        notices = [told.notice] if told.notice else []
        if view.state == "waiting":
            try:
                onlooker = self.onlooker()
                entry = onlooker.entry(view.uid)
                if entry is not None and entry.wants_to_run:
                    answer["changes"] = self._starts(onlooker.snapshot(), JobKey(entry.key), told.rules)
            except NotAllowedError as error:
                notices.append(f"What would start it cannot be told. {error}")
        return answer | ({"notices": notices} if notices else {})

    def history(self, name: str) -> list[dict[str, float | int | None]]:
        """The last report: a cluster keeps no more."""
        job = self.job(name)
        if job.step is None:
            return []
        last: dict[str, float | int | None] = {"at": self._clock(), "attempt": job.attempt, "step": job.step}
        last["total"] = job.total
        return [last | ({job.metric: job.value} if job.metric else {})]

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        raise UserError("Jobs of a cluster report to the monitor of their node: POST /monitor on its port 8081.")

    def changes(self, after: int) -> Iterator[int]:
        for has_changed in self.watching().looks():
            if has_changed:
                after += 1
                yield after

    # Rules.

    def rules(self) -> PolicyView:
        told = rules_in(self._asking, self._clock())
        if told.notice:
            raise UserError(told.notice)
        return told.rules

    def set_rules(self, **changes: str) -> PolicyView:
        name, value = next(iter(changes.items()), ("policy", "elastic-fifo"))
        raise UserError(
            "The rules of a cluster are settings of its operator; change them where it is installed, for example with: "
            f"helm upgrade sterna deploy/chart/sterna --reuse-values --set operator.{_camel(name)}={value}."
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
