"""`sterna operator`: schedules the training jobs of a Kubernetes cluster.

The operator watches the cluster, waits until it holds the Lease, and then runs the round loop; its HTTP server runs
beside it. Its only state is the cluster's objects, so it may be killed at any time. Errors of a round, or of the API
server, are logged and retried.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from sterna.apps.operator_server import CallerAuthenticator, CallerServices, OperatorServer, connect_as_caller
from sterna.backends.kubernetes.api.operator_rules import operator_rules
from sterna.backends.kubernetes.api.resources import LEASES, Inbox, WriteResult
from sterna.backends.kubernetes.backend import BackendConfig, BackendHooks, KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.leader import Leadership, LeaseTimes
from sterna.backends.kubernetes.learned_store import PAUSE_SECONDS, LearnedStore
from sterna.backends.kubernetes.moves.manual import ManualMoves
from sterna.backends.kubernetes.pods.gang import ClusterDomain
from sterna.backends.kubernetes.server.request_processor import RequestProcessor
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access, access_of
from sterna.control.clock import steady_clock
from sterna.control.health import HealthStatus, LoopWatchdog
from sterna.control.journal import JournalWriter
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import ChangedRounds, RoundLoop
from sterna.engine.decide import Rules
from sterna.errors import SternaError, UserError, did_you_mean
from sterna.kinds.context import KubeShare, ParseContext
from sterna.kinds.labels import RULES
from sterna.kinds.parsing.resource_requests import GPUS
from sterna.kinds.resource import Resource
from sterna.logs import configure_logging
from sterna.settings import LeaseSettings, OperatorSettings, is_count_only
from sterna.wiring import growth_rule_of, make_rules, preferred_placement, rules_by_type, unknown_types

_log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0
_GATHER_SECONDS = 0.01
_STAND_BY_SECONDS = 0.2
"""Period at which a replica that stands by checks whether it leads."""
_SETTLE_SECONDS = 0.5
"""Delay before a new leader decides, in which the watch delivers the last writes of its predecessor."""
TAKING_OVER_SECONDS = _STAND_BY_SECONDS + _SETTLE_SECONDS
"""Time from holding the Lease to the first round, without the time to read the cluster."""
_DRAIN_SECONDS = 3.0

_MONITOR = "sterna-monitor"
"""Service account of the monitors."""


def rules_of(settings: OperatorSettings) -> Rules:
    """Make the rules; placements without nodes are rejected, because pods need one."""
    placement = settings.placement or preferred_placement(settings.policy)
    if is_count_only(placement):
        raise UserError("The placement 'none' only counts devices; choose one that finds nodes, such as stay or pack.")
    by_type = rules_by_type(settings.policy_for.split(), settings.placement)
    return make_rules(settings.policy, placement, settings.migration, settings.cpu_share, settings.reservation, by_type)


def context_of(settings: OperatorSettings) -> ParseContext:
    """Return the defaults for what users' objects leave open."""
    modes = {each.value: each for each in KubeShare}
    for flag, chosen, known in (
        ("--kubeshare", settings.kubeshare, tuple(modes)),
        ("--gpu-resource", settings.gpu_resource, GPUS),
    ):
        if chosen not in known:
            raise UserError(f"{flag} {chosen}: there is no such choice: {did_you_mean(chosen, known)}")
    return ParseContext(settings.default_image, settings.gpu_resource, modes[settings.kubeshare])


def lease_times(lease: LeaseSettings) -> LeaseTimes:
    """Return the durations of the election; the holder must stop writing before another replica may take the Lease."""
    # The API takes whole seconds for the duration.
    times = LeaseTimes(int(lease.duration_seconds), lease.renew_seconds, lease.retry_seconds)
    if not times.retry < times.renew_deadline < times.lease:
        raise UserError(
            f"A Lease of {times.lease} s that is given up after {times.renew_deadline:g} s and tried every "
            f"{times.retry:g} s lets two replicas act at once, or none; choose --lease-retry < --lease-renew < "
            "--lease-duration, such as 2, 10 and 15."
        )
    return times


class Operator:
    """An operator that runs in this process. Use it as a context manager, or through `run`."""

    def __init__(self, settings: OperatorSettings, access: Access) -> None:
        self.settings = settings
        self._clock = steady_clock()
        # Invalid settings are rejected before anything starts.
        self._rules, self._lease_times = rules_of(settings), lease_times(settings.lease)
        context, self._journal = context_of(settings), open_journal(settings)
        self.identity = settings.identity or socket.gethostname()
        self.watchdog = LoopWatchdog(settings.stall_seconds + settings.rate_limit_seconds)
        self._over = threading.Event()
        self._leadership: Leadership | None = None
        self.server = Client(access, self._may_write)
        self.inbox = Inbox()
        self.backend = KubernetesBackend(
            self.server,
            self.inbox,
            self._clock,
            BackendConfig(
                settings.namespace,
                self.identity,
                _GATHER_SECONDS,
                context,
                ClusterDomain(settings.cluster_domain),
                settings.evict_unsaved,
            ),
            Progress(growth_rule_of(self._rules)),
            BackendHooks(self._before_reconcile, self._count_write, self._count_event, self._report_job_error),
        )
        monitors = (f"{self._namespace(access)}/{_MONITOR}",) if settings.authenticate else ()
        self.requests = RequestProcessor(self.backend, self.server, self, monitors)
        self.http = OperatorServer(
            settings.listen,
            self.requests.endpoints,
            self,
            CallerServices(connect_as_caller(access, settings.namespace)),
            CallerAuthenticator(TokenReviewer(self.server), settings.remote_api),
        )
        self._manual_moves = ManualMoves(self.backend)
        state = self.backend.state
        self._learned = LearnedStore(self.server, self._namespace(access), state.progress, self.is_leading)
        if settings.leader_election:
            self._leadership = self._make_candidate(access)
        self.loop = self._make_loop()
        self._thread = threading.Thread(target=self._work, name="controller", daemon=True)
        self.failure: BaseException | None = None
        self._reported: dict[Resource, str] = {}

    def _namespace(self, access: Access) -> str:
        """Namespace of the Lease and the monitors."""
        return self.settings.lease.namespace or access.namespace or "default"

    def _make_candidate(self, access: Access) -> Leadership:
        leadership = Leadership(
            self.server,
            self._namespace(access),
            self.settings.lease.name,
            self.identity,
            times=self._lease_times,
            on_lost=self._step_down,
            is_alive=lambda: self.watchdog.is_alive,
        )
        leadership.notes = {RULES: msgspec.json.encode(operator_rules(self.settings)).decode()}
        return leadership

    # Start and stop.

    def __enter__(self) -> Operator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start watching, serving, the election and the loop; returns at once."""
        try:
            self.http.start()
            self.backend.start()
            if self._leadership is not None:
                self._leadership.address = self.http.address
                self._leadership.start()
            self._thread.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the loop and release the Lease; training goes on."""
        self._over.set()
        self.backend.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        if not self.is_stalled:  # else the loop may hold the lock that these need
            self._learned.save()
            self.backend.drain(_DRAIN_SECONDS)  # writes in flight must not arrive when another replica leads
        if self._leadership is not None:
            self._leadership.stop()
        self.http.stop()
        self.server.close()
        if self._journal is not None:
            self._journal.__exit__(None, None, None)

    def wait(self) -> None:
        """Wait until `finish` was called."""
        self._over.wait()

    def finish(self) -> None:
        """Ask the operator to end. Any thread and signal handlers may call it."""
        self._over.set()
        self.backend.close()

    @property
    def is_stalled(self) -> bool:
        """True if the loop did not end in time after it was asked to."""
        return self._over.is_set() and self._thread.is_alive()

    # State, for the HTTP server.

    def is_leading(self) -> bool:
        return self.backend.is_ready and self._may_write()

    def leader_address(self) -> str:
        """`http://HOST:PORT` of another replica that leads; empty if there is none."""
        return self._leadership.leader_address if self._leadership is not None else ""

    def check_live(self) -> HealthStatus:
        return self.watchdog.check_live()

    def check_ready(self) -> HealthStatus:
        """Ready once the cluster has been read; a replica that stands by is ready to take over."""
        if not self.backend.is_synced:
            return HealthStatus(False, f"The cluster has not been read yet. {self.server.last_error}".strip())
        if self.is_leading():
            return HealthStatus(True, f"ok: {self.identity} leads")
        holder = self._leadership.holder if self._leadership is not None else ""
        return HealthStatus(True, f"ok: {self.identity} stands by; {holder or 'no replica'} holds the Lease")

    def _may_write(self) -> bool:
        return self._leadership is None or self._leadership.may_write()

    def _step_down(self) -> None:
        """Exit, because the cache is stale from now on; the restarted process rebuilds it."""
        _log.error("The Lease is lost; this replica exits, and stands by when it is started again.")
        self.finish()

    # The loop.

    def _work(self) -> None:
        try:
            self._prepare()
            self.loop.run()
        except BaseException as error:
            self.failure = error
            self.finish()
            raise

    def _prepare(self) -> None:
        """Wait until the cluster has been read and the Lease is held."""
        while not self._over.is_set() and not self.backend.prepare(1.0):
            self._beat()
        self._beat()
        while self._leadership is not None and not self._over.is_set() and not self._leadership.may_write():
            self.backend.watch_only(_STAND_BY_SECONDS)
            self._beat()
        if self._leadership is not None and not self._over.is_set():
            self.backend.watch_only(_SETTLE_SECONDS)
        if not self._over.is_set():
            self._learned.load()
            self.backend.become_leader()
            self._beat()
            _log.info("Sterna leads as %s with %d nodes.", self.identity, len(self.backend.state.capacity.names))
            for sentence in unknown_types(self._rules, self.backend.observe().nodes) if self._rules.by_type else ():
                _log.warning("%s", sentence)

    # Hooks of the backend.

    def _before_reconcile(self, now: float) -> None:
        self.requests.process_requests(now)
        self._manual_moves.process(now)
        self._save_learned(now)

    def _count_write(self, result: WriteResult) -> None:
        self.requests.metrics.count_write(result)

    def _count_event(self, event: JobEvent, uid: str) -> None:
        self.requests.metrics.count_event(event, uid)

    def _save_learned(self, now: float) -> None:
        if self._learned.save_if_due(now):
            self.backend.timers.set(now + PAUSE_SECONDS)

    def _beat(self) -> None:
        self.watchdog.beat()
        self._report_outages()

    def _report_outages(self) -> None:
        """Log each resource that the API server does not show, and the server itself, when the reason changes."""
        outages = dict(self.backend.absent)
        outages[_SERVER] = self.server.last_error
        outages[LEASES] = self._leadership.last_error if self._leadership is not None else ""
        for resource, why in outages.items():
            if why and self._reported.get(resource) != why:
                _log.warning("%s", why)
        self._reported = {resource: why for resource, why in outages.items() if why}

    def _make_loop(self) -> RoundLoop:
        settings, journal = self.settings, self._journal
        return RoundLoop(
            RateLimited(self.backend, settings.rate_limit_seconds or 0.0),
            self._rules,
            (self.requests.specon_csv, *([] if journal is None else [ChangedRounds(journal)])),
            on_bug=self._report_job_error,
            on_error=self._report_error,
            on_round=self._note_round,
            revisit_at=lambda: self._clock() + self.watchdog.period_seconds,
            stop=self._over,
        )

    def _note_round(self, seconds: float) -> None:
        self.requests.metrics.count_round(seconds)
        self._beat()

    def _report_error(self, error: Exception, retry_seconds: float) -> None:
        is_defect = not isinstance(error, SternaError)
        why = (f"{type(error).__name__}: {error}" if is_defect else str(error)).removesuffix(".")
        _log.error(
            "Round failed; will retry in %g s: %s.",
            retry_seconds,
            why,
            exc_info=error if is_defect else None,
            extra={"round": self.loop.rounds},
        )
        self._report_outages()

    def _report_job_error(self, error: Exception) -> None:
        """Log an error that concerns a single job or watch event; all others were processed."""
        why = f"{type(error).__name__}: {error}".removesuffix(".")
        extra = {"round": self.loop.rounds}
        _log.error("Reconcile failed for one job; will retry: %s.", why, exc_info=error, extra=extra)


_SERVER = Resource("", "", "", "")
"""Stands for the server as a whole."""


def open_journal(settings: OperatorSettings) -> JournalWriter | None:
    """Open a new journal; after a restart the next one is numbered, beside the old one."""
    if not settings.journal:
        return None
    path, number = Path(settings.journal), 1
    while path.exists() and path.is_file():
        number += 1
        path = Path(f"{settings.journal}.{number}")
    if number > 1:
        _log.info("'%s' is another operator's journal; this one's is '%s'.", settings.journal, path)
    return JournalWriter(
        path,
        policy=settings.policy,
        placement=settings.placement or preferred_placement(settings.policy),
        migration=settings.migration,
        cpu_share=settings.cpu_share,
        reservation=settings.reservation,
        by_type=rules_by_type(settings.policy_for.split(), settings.placement),
    )


def run(settings: OperatorSettings, ready: Callable[[Operator], None] | None = None) -> None:
    """Be the operator of a cluster until SIGTERM or SIGINT."""
    configure_logging(settings.log_level, settings.log_format)
    operator = Operator(settings, access_of(settings.kubeconfig, settings.context))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: operator.finish())
    with operator:
        if ready is not None:
            ready(operator)
        operator.wait()
    if operator.is_stalled:
        _log.critical("The scheduling loop hangs; the process is ended.")
        os._exit(1)  # threads that wait for the loop's lock would keep the process
    if operator.failure is not None:
        raise operator.failure
