"""Nodes of a cluster, seen and taken out of use, as `kubectl cordon` and `drain` do it, for the pods of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from sterna.backends.kubernetes.api.objects import Node
from sterna.backends.kubernetes.api.resources import NODES, Followed
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.query.reader import ApiReader, NotThereError
from sterna.control.cluster_service import NodeView
from sterna.errors import Retry, did_you_mean
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS

if TYPE_CHECKING:
    from sterna.backends.kubernetes.query.observer import Observer

_BUSY = 429


class ClusterNodes:
    """Asked by one person."""

    def __init__(self, asking: ApiReader, onlooker: Callable[[], Observer]) -> None:
        self._asking, self._onlooker = asking, onlooker

    def views(self) -> list[NodeView]:
        return self._onlooker().nodes()

    def cordon(self, node: str, is_open: bool, drain: bool) -> NodeView:
        """A drained node's jobs are evicted, with their time to save; the operator finds them another place."""
        self._check(node)
        self._asking.patch(NODES, "", node, {"spec": {"unschedulable": None if is_open else True}})
        if drain and not is_open:
            for pod in self._pods_of_jobs(node):
                self._evict(pod)
        return next(view for view in self.views() if view.name == node)

    def _check(self, node: str) -> None:
        try:
            self._asking.found(NODES, Node, "", node)
        except NotThereError:
            names = [each.metadata.name for each in self._asking.listed(Followed(NODES, Node))]
            raise NotThereError(f"There is no node '{node}': {did_you_mean(node, names)}") from None

    def _pods_of_jobs(self, node: str) -> Iterator[Pod]:
        for pod in self._asking.listed(Followed(PODS, Pod, fields=f"spec.nodeName={node}")):
            row = pod_row(pod)
            if row.job and not row.is_terminated and not row.is_deleting:
                yield pod

    def _evict(self, pod: Pod) -> None:
        """A disruption budget may forbid it for now."""
        meta = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        path = PODS.path(meta.namespace, meta.name, "eviction")
        answer = self._asking.server.ask("POST", path, msgspec.json.encode(eviction))
        if answer.status == _BUSY:
            raise Retry(f"Pod '{meta.name}' may not be evicted now ({answer.message.rstrip('.')}); drain again later.")
        if not answer.is_done and answer.status not in (404, 409):
            raise self._asking.refusal(answer, PODS, meta.namespace, meta.name)
