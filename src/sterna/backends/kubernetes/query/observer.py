"""A read-only instance of the Kubernetes backend, for commands about free capacity and decisions.

`KubernetesBackend` writes nothing until a plan is applied, so a command reports what the operator itself would see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from sterna.backends.kubernetes.api.resources import NODES, ApiServer, Inbox
from sterna.backends.kubernetes.backend import BackendConfig, KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.views import node_views
from sterna.backends.kubernetes.moves.manual import validate_move
from sterna.errors import Retry
from sterna.kinds.context import ParseContext
from sterna.kinds.resource import PODS
from sterna.model.snapshot import Snapshot
from sterna.service.errors import ForbiddenError
from sterna.service.views import NodeView

_SYNC_SECONDS = 60.0
_STEP_SECONDS = 0.25


@dataclass
class Observer:
    """A backend whose caches are synced; raises `ForbiddenError` if the caller may not list nodes and pods."""

    server: ApiServer
    inbox: Inbox
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        about = BackendConfig(identity="observer", context=ParseContext(default_image="default"))
        self.backend = KubernetesBackend(self.server, self.inbox, self.clock, about)
        self.backend.start()
        ends_at = self.clock() + _SYNC_SECONDS
        while not self.backend.prepare(_STEP_SECONDS):
            self._check(self.clock() >= ends_at)
        self.backend.become_leader()

    def _check(self, is_late: bool) -> None:
        for resource in (NODES, PODS):
            if resource in self.backend.absent:
                raise ForbiddenError(
                    f"This needs to see the {resource.plural} of the whole cluster, which you may not; ask its "
                    "administrator for the right to list and watch nodes and pods."
                )
        failure = getattr(self.server, "last_error", "")
        if failure or is_late:
            raise Retry(failure or f"The cluster did not tell of everything within {_SYNC_SECONDS:g} s; try again.")

    def refresh(self) -> None:
        """Process the events that arrived since."""
        self.backend.watch_only(0.0)

    def entry(self, uid: str) -> JobEntry | None:
        return self.backend.state.jobs.by_uid.get(uid)

    def check_move(self, uid: str, node: str) -> None:
        """Raise `UserError` if the operator would not move this job there."""
        entry = self.entry(uid)
        if entry is not None:
            validate_move(self.backend.state, entry, node)

    def snapshot(self) -> Snapshot:
        """Return the snapshot that rules would see now."""
        return self.backend.observe()

    def nodes(self) -> list[NodeView]:
        """Return all nodes; a node whose kubelet is not ready, or that is being drained, has that state."""
        cluster_state = self.backend.state
        found = []
        for view in node_views(cluster_state):
            facts = cluster_state.capacity.facts(view.name)
            state = "not ready" if facts is not None and not facts.is_ready else view.state
            if state == "cordoned" and self._is_draining(view.name):
                state = "draining"
            found.append(msgspec.structs.replace(view, state=state))
        return found

    def _is_draining(self, node: str) -> bool:
        """True if a pod of a job on this node is being deleted."""
        entries = self.backend.state.entries.values()
        return any(pod.node == node and pod.is_deleting for entry in entries for pod in entry.live_pods)
