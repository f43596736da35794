"""A monitor as it runs: the API server before it, the operator behind it, and the loop in between.

Whatever goes wrong in a pass is said, and the next one is made all the same.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from sterna.backends.kubernetes.api.resources import ApiServer, Delta, Followed, Inbox
from sterna.backends.kubernetes.monitor.monitor import LOOK_SECONDS, Monitor, Options
from sterna.backends.kubernetes.monitor.operator_client import Find, OperatorLink, address_in_lease
from sterna.backends.kubernetes.monitor.pods import NodePod
from sterna.backends.kubernetes.monitor.sample_server import Sample, SampleService
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from sterna.kinds.resource import PODS

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 0.1
"""Between two passes, however much arrives."""


@dataclass(frozen=True)
class Surroundings:
    """Whom a monitor speaks to, and where it is spoken to."""

    listen: str
    server: str = ""
    """The operator's service; empty: as the Lease says."""
    lease_name: str = "sterna-operator"
    lease_namespace: str = ""
    token_file: Path | None = None


def connected(options: Options, around: Surroundings, kubeconfig: str = "", context: str = "") -> RunningMonitor:
    """A monitor of a real cluster; the Lease is in the namespace of whoever runs this, if nothing else is said."""
    access = access_of(kubeconfig, context)
    namespace = around.lease_namespace or access.namespace
    return RunningMonitor(options, replace(around, lease_namespace=namespace), Client(access))


class RunningMonitor:
    """Runs in the thread that calls `run`, until another calls `stop`."""

    def __init__(self, options: Options, around: Surroundings, server: ApiServer) -> None:
        self._server, self._node = server, options.node
        self._link = OperatorLink(_finder(around, server), around.token_file)
        self._inbox = Inbox()
        self._monitor = Monitor(options, self._link)
        self._service = SampleService(around.listen, self._put, self._monitor.pod_at)
        self._over = threading.Event()

    @property
    def port(self) -> int:
        return self._service.port

    def run(self) -> None:
        try:
            self._service.start()
            self._server.follow([Followed(PODS, NodePod, fields=f"spec.nodeName={self._node}")], self._inbox)
            while not self._over.is_set():
                self._inbox.wait(LOOK_SECONDS)
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
            self._monitor.look()
        except Exception:  # one pod's files, one bad answer: nobody else's reports shall suffer
            _log.exception("A look at this node's pods failed; it goes on.", extra={"node": self._node})


def _finder(around: Surroundings, server: ApiServer) -> Find:
    address = around.server.rstrip("/")
    if not address:
        return address_in_lease(server, around.lease_namespace, around.lease_name)
    return lambda: address if "://" in address else f"http://{address}"
