"""Run a monitor: watch the pods of the node, poll them, send reports. A failed pass is logged and retried."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from sterna.backends.kubernetes.api.resources import ApiServer, Delta, Followed, Inbox
from sterna.backends.kubernetes.monitor.monitor import POLL_SECONDS, Monitor, MonitorOptions
from sterna.backends.kubernetes.monitor.operator_client import FindOperator, OperatorLink, address_in_lease
from sterna.backends.kubernetes.monitor.pods import NodePod
from sterna.backends.kubernetes.monitor.sample_server import Sample, SampleService
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from sterna.kinds.resource import PODS

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 0.1
"""Minimum interval between two passes."""


@dataclass(frozen=True)
class MonitorAddresses:
    """Addresses that a monitor uses."""

    listen: str
    server: str = ""
    """Address of the operator's service; empty: read it from the Lease."""
    lease_name: str = "sterna-operator"
    lease_namespace: str = ""
    token_file: Path | None = None


def connect_monitor(
    options: MonitorOptions, addresses: MonitorAddresses, kubeconfig: str = "", context: str = ""
) -> RunningMonitor:
    """A monitor of a real cluster. Without `lease_namespace` the Lease is in the namespace of the context."""
    access = access_of(kubeconfig, context)
    namespace = addresses.lease_namespace or access.namespace
    return RunningMonitor(options, replace(addresses, lease_namespace=namespace), Client(access))


class RunningMonitor:
    """Runs in the thread that calls `run`, until another calls `stop`."""

    def __init__(self, options: MonitorOptions, addresses: MonitorAddresses, server: ApiServer) -> None:
        self._server, self._node = server, options.node
        self._link = OperatorLink(_finder(addresses, server), addresses.token_file)
        self._inbox = Inbox()
        self._monitor = Monitor(options, self._link)
        self._service = SampleService(addresses.listen, self._put, self._monitor.pod_at)
        self._over = threading.Event()

    @property
    def port(self) -> int:
        return self._service.port

    def run(self) -> None:
        try:
            self._service.start()
            self._server.follow([Followed(PODS, NodePod, fields=f"spec.nodeName={self._node}")], self._inbox)
            while not self._over.is_set():
                self._inbox.wait(POLL_SECONDS)
                self._pass()
                self._over.wait(_LEAST_SECONDS)
        finally:
            self._service.stop()
            self._monitor.close()
            self._link.close()
            self._server.close()

    def stop(self) -> None:
        """From any thread, and from a signal handler."""
        self._over.set()
        self._inbox.wake()

    def _put(self, sample: Sample) -> bool:
        is_taken = self._monitor.put(sample)
        self._inbox.wake()
        return is_taken

    def _pass(self) -> None:
        try:
            deltas = [item for item in self._inbox.take() if isinstance(item, Delta)]
            if deltas:
                self._monitor.see(deltas)
            self._monitor.poll()
        except Exception:  # one malformed file or response must not stop the reports of other pods
            _log.exception("Pass over the pods of this node failed; will retry", extra={"node": self._node})


def _finder(addresses: MonitorAddresses, server: ApiServer) -> FindOperator:
    address = addresses.server.rstrip("/")
    if not address:
        return address_in_lease(server, addresses.lease_namespace, addresses.lease_name)
    return lambda: address if "://" in address else f"http://{address}"
