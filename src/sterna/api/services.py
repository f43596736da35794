"""`ServiceRegistry`: the `ClusterService` of each caller, and what the application keeps beside it."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from sterna.api.auth import Caller
from sterna.api.submit_batching import SubmitBatcher
from sterna.api.watch_hub import WatchHub
from sterna.service.cluster_service import ClusterService

ServiceFactory = Callable[[Caller], ClusterService]
"""Returns the service for a caller; the same object for the same caller."""


class ServiceRegistry:
    """Lives on the event loop. A daemon has one service; an operator one per caller, with the caller's credentials."""

    def __init__(self, service: ClusterService | None, service_for: ServiceFactory | None = None) -> None:
        self._service, self._service_for = service, service_for
        self._hubs: WeakKeyDictionary[ClusterService, WatchHub] = WeakKeyDictionary()
        self._batchers: WeakKeyDictionary[ClusterService, SubmitBatcher] = WeakKeyDictionary()

    def service_of(self, caller: Caller) -> ClusterService:
        if self._service_for is not None:
            return self._service_for(caller)
        assert self._service is not None
        return self._service

    def hub_of(self, service: ClusterService) -> WatchHub:
        if service not in self._hubs:
            self._hubs[service] = WatchHub(service)
        return self._hubs[service]

    def batcher_of(self, service: ClusterService) -> SubmitBatcher:
        if service not in self._batchers:
            self._batchers[service] = SubmitBatcher(service)
        return self._batchers[service]

    def close(self) -> None:
        """End every stream; called on the event loop."""
        for hub in list(self._hubs.values()):
            hub.close()
