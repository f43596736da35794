"""How commands reach a Kubernetes cluster: the questions of `client.py`, answered in this process from its API server.

A path of the REST API is a verb of the cluster, so that a command prints the same wherever its jobs run. Imported only
by a command that means a Kubernetes cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

import click
import msgspec

from sterna.backends.kubernetes.api.operator_rules import OperatorRules
from sterna.backends.kubernetes.query.cluster import KubernetesCluster, Place
from sterna.backends.kubernetes.transport.client import Client as Server
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from sterna.cli.connect.client import Client
from sterna.cli.connect.target import Where
from sterna.errors import Bug, UserError
from sterna.kinds.parsing.documents import Document, read_documents
from sterna.model.snapshot import JobKey, Snapshot

Value = Any
_KINDS = ("jobs", "nodes", "rules", "events")
_PASSING = frozenset({"waited_seconds", "ran_seconds"})
"""What changes by itself, and is no news."""
_SOURCE = "the request"


def opened(where: Where) -> ClusterClient:
    """The cluster that these options mean; closed when the command is over."""
    access = access_of(where.kubeconfig, where.context)
    place = Place(where.namespace or access.namespace, where.is_everywhere, access.context)
    cluster = KubernetesCluster(lambda: Server(access), place, what_would_start)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(cluster.close)
    return ClusterClient(cluster)


def what_would_start(snapshot: Snapshot, key: JobKey, rules: OperatorRules) -> list[dict[str, object]]:
    """The smallest changes that would start a job which waits."""
    from sterna.explain.counterfactual import changes_that_start, starting
    from sterna.wiring import make_rules, rules_by_type

    by_type = rules_by_type(rules.policy_for.split(), rules.placement)
    made = make_rules(rules.policy, rules.placement, rules.migration, rules.cpu_share, rules.reservation, by_type)
    rows = (snapshot.jobs.key == key).nonzero()[0]
    if not len(rows):
        return []
    if starting(snapshot, key, made) is not None:
        sentence = "There is room for it now: it starts as soon as the operator looks at it."
        return [{"change": "nothing", "amount": 0, "sentence": sentence}]
    return [change.document for change in changes_that_start(snapshot, int(rows[0]), made)]


class ClusterClient(Client):
    """Asks a Kubernetes cluster as if it were any other."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def get(self, *path: str, **query: object) -> Value:
        match path:
            case ("jobs",):
                return self._told(self._cluster.jobs)
            case ("nodes",):
                return _plain(self._cluster.nodes())
            case ("events",):
                return _plain(self._cluster.events(str(query.get("job", ""))))
            case ("rules",):
                return _plain(self._cluster.rules())
            case ("jobs", name):
                return _plain(self._cluster.job(name))
            case ("nodes", name):
                return _plain(self._node(name))
            case ("jobs", name, "explain"):
                return self._cluster.explain(name)
            case ("jobs", name, "history"):
                return self._cluster.history(name)
        raise Bug(f"no verb for GET {'/'.join(path)}")

    def delete(self, *path: str, **query: Any) -> Value:
        return _plain(self._cluster.delete(query["name"]))

    def post(self, *path: str, value: Any = None) -> Value:
        match path:
            case ("jobs", name, "migrate"):
                return _plain(self._cluster.migrate(name, value["node"], value["by_checkpoint"]))
            case ("nodes", name, verb):
                return _plain(self._cluster.cordon(name, verb == "uncordon", verb == "drain"))
        raise Bug(f"no verb for POST {'/'.join(path)}")

    def patch(self, *path: str, value: Any) -> Value:
        match path:
            case ("jobs", name):
                return _plain(self._cluster.scale(name, value["minimum"], value["maximum"]))
            case ("rules",):
                return _plain(self._cluster.set_rules(**{key: str(each) for key, each in value.items()}))
        raise Bug(f"no verb for PATCH {'/'.join(path)}")

    def create(self, manifests: bytes, is_json: bool, cwd: str, key: str) -> Value:
        documents = [Document(msgspec.json.decode(manifests), _SOURCE)] if is_json else _documents(manifests)
        jobs, notices = self._cluster.create_documents(documents, key)
        return {"jobs": _plain(jobs), "notices": notices}

    def log(self, name: str, replica: str, offset: int) -> tuple[bytes, int]:
        return self._cluster.log(name, replica, offset)

    def watch(self, until: float = math.inf, **query: object) -> Iterator[tuple[str, Value]]:
        kinds = {str(query["kind"])} if "kind" in query else set(_KINDS)
        sources = [_NodeNews(self._cluster)] if "nodes" in kinds else []
        if "rules" in kinds:
            yield "rules", self._rules()
        jobs = _JobNews(self._cluster, kinds)
        for has_changed in jobs.looks(until):
            for source in sources:
                yield from source.news()
            if has_changed:
                yield from jobs.news()

    def _told(self, ask: Callable[[], Any]) -> Value:
        """With a word about what was left out."""
        answer = _plain(ask())
        for notice in self._cluster.notices:
            click.echo(f"note: {notice}", err=True)
        return answer

    def _node(self, name: str) -> Any:
        from sterna.errors import did_you_mean

        views = {view.name: view for view in self._cluster.nodes()}
        if name not in views:
            raise UserError(f"There is no node '{name}': {did_you_mean(name, views)}")
        return views[name]

    def _rules(self) -> Value:
        try:
            return _plain(self._cluster.rules())
        except UserError:
            return {}


class _NodeNews:
    """Nodes, when they are not as they were."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._onlooker = cluster.onlooker()
        self._said: Value = None

    def news(self) -> Iterator[tuple[str, Value]]:
        self._onlooker.stay_informed()
        nodes = _plain(self._onlooker.nodes())
        if nodes != self._said:
            self._said = nodes
            yield "nodes", nodes


class _JobNews:
    """Jobs and events that are new to whoever watches."""

    def __init__(self, cluster: KubernetesCluster, kinds: Collection[str]) -> None:
        self._cluster, self._kinds = cluster, kinds
        self._watching = cluster.watching()
        self._said: dict[str, Value] = {}
        self._last_event = 0
        self._is_first = True

    def looks(self, until: float) -> Iterator[bool]:
        return self._watching.looks(until)

    def news(self) -> Iterator[tuple[str, Value]]:
        sightings = self._watching.sightings
        if "jobs" in self._kinds:
            jobs = {job["uid"]: job for job in _plain(self._cluster.views(sightings))}
            changed = [job for uid, job in jobs.items() if _lasting(job) != self._said.get(uid)]
            gone = [uid for uid in self._said if uid not in jobs]
            self._said = {uid: _lasting(job) for uid, job in jobs.items()}
            if changed or gone or self._is_first:
                yield "jobs", {"changed": changed, "gone": gone}
        self._is_first = False
        if "events" in self._kinds:
            events = [each for each in self._cluster.event_views(sightings) if each.number > self._last_event]
            if events:
                self._last_event = events[-1].number
                yield "events", _plain(events)


def _plain(value: object) -> Value:
    """As it comes from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _lasting(job: Value) -> Value:
    return {name: value for name, value in job.items() if name not in _PASSING}


def _documents(manifests: bytes) -> list[Document]:
    try:
        return read_documents(manifests.decode(), _SOURCE)
    except UnicodeDecodeError:
        raise UserError(f"{_SOURCE}: this is not text in UTF-8.") from None
