"""Nodes of a cluster: views, and cordon and drain as kubectl does them, for the pods of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from sterna.backends.kubernetes.api.objects import Node
from sterna.backends.kubernetes.api.resources import NODES, Followed
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.errors import Retry, did_you_mean
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from sterna.service.errors import NotFoundError
from sterna.service.views import NodeView

if TYPE_CHECKING:
    from sterna.backends.kubernetes.query.observer import Observer

_TOO_MANY_REQUESTS = 429


class ClusterNodes:
    """Lists, cordons and drains nodes."""

    def __init__(self, reader: ApiReader, observe: Callable[[], Observer]) -> None:
        self._reader, self._observe = reader, observe

    def views(self) -> list[NodeView]:
        return self._observe().nodes()

    def cordon(self, node: str) -> NodeView:
        self._set_unschedulable(node, True)
        return self._view(node)

    def uncordon(self, node: str) -> NodeView:
        self._set_unschedulable(node, None)
        return self._view(node)

    def drain(self, node: str) -> NodeView:
        """Cordon a node and evict its jobs' pods, which get their grace period; the operator places the jobs again."""
        self._set_unschedulable(node, True)
        for pod in self._pods_of_jobs(node):
            self._evict(pod)
        return self._view(node)

    def _view(self, node: str) -> NodeView:
        return next(view for view in self.views() if view.name == node)

    def _set_unschedulable(self, node: str, value: bool | None) -> None:
        self._check_exists(node)
        self._reader.patch(NODES, "", node, {"spec": {"unschedulable": value}})

    def _check_exists(self, node: str) -> None:
        try:
            self._reader.get(NODES, Node, "", node)
        except NotFoundError:
            names = [each.metadata.name for each in self._reader.list_all(Followed(NODES, Node))]
            raise NotFoundError(f"There is no node '{node}': {did_you_mean(node, names)}") from None

    def _pods_of_jobs(self, node: str) -> Iterator[Pod]:
        for pod in self._reader.list_all(Followed(PODS, Pod, fields=f"spec.nodeName={node}")):
            row = pod_row(pod)
            if row.job and not row.is_terminated and not row.is_deleting:
                yield pod

    def _evict(self, pod: Pod) -> None:
        """Evict a pod; `Retry` if a disruption budget forbids it at present."""
        meta = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        path = PODS.path(meta.namespace, meta.name, "eviction")
        answer = self._reader.server.ask("POST", path, msgspec.json.encode(eviction))
        if answer.status == _TOO_MANY_REQUESTS:
            raise Retry(f"Pod '{meta.name}' may not be evicted now ({answer.message.rstrip('.')}); drain again later.")
        if not answer.is_done and answer.status not in (404, 409):
            raise self._reader.refusal(answer, PODS, meta.namespace, meta.name)
