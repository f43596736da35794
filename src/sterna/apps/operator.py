"""The operator of a cluster, `sterna operator`: one process that decides and acts, and may be killed at any moment.

It follows the cluster, waits until it holds the Lease, and then runs the controller's loop; what it serves
(`/progress`, `/migrate`, `/metrics`) runs beside it. Everything it knows is in objects of the cluster: a successor
finds it there. What goes wrong in a round, or with the server, is told in one sentence and tried again.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from sterna.backends.kubernetes.api.operator_rules import operator_rules
from sterna.backends.kubernetes.api.resources import LEASES, Inbox, WriteResult
from sterna.backends.kubernetes.backend import BackendConfig, BackendHooks, KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.leader import Leadership, Terms
from sterna.backends.kubernetes.learned_store import PAUSE_SECONDS, LearnedStore
from sterna.backends.kubernetes.moves.manual import ManualMoves
from sterna.backends.kubernetes.server.server import Service
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access, access_of
from sterna.control.clock import steady_clock
from sterna.control.journal import JournalWriter
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import ChangedRounds, RoundLoop
from sterna.engine.decide import Rules
from sterna.errors import SternaError, UserError, did_you_mean
from sterna.kinds.context import ClusterDomain, KubeShare, ParseContext
from sterna.kinds.labels import RULES
from sterna.kinds.parsing.resource_requests import GPUS
from sterna.kinds.resource import Resource
from sterna.settings import LeaseSettings, OperatorSettings, is_count_only
from sterna.wiring import growth_rule_of, make_rules, preferred_placement, rules_by_type, unknown_types

_STOP_SECONDS = 10.0
_GATHER_SECONDS = 0.01
_STAND_BY_SECONDS = 0.2
"""How often one that stands by looks whether it leads."""
_SETTLE_SECONDS = 0.5
"""What a predecessor wrote last is seen a moment later."""
TAKING_OVER_SECONDS = _STAND_BY_SECONDS + _SETTLE_SECONDS
"""From holding the Lease to deciding, as far as it is not a matter of how much there is to know."""
_DRAIN_SECONDS = 3.0

_MOST_MISHAPS = 100
"""So many different ones are told."""

_MONITOR = "sterna-monitor"
"""The service account of the monitors."""

Say = Callable[[str], None]


def rules_of(settings: OperatorSettings) -> Rules:
    """Rules for real nodes: everything must be placed somewhere."""
    placement = settings.placement or preferred_placement(settings.policy)
    if is_count_only(placement):
        raise UserError("The placement 'none' only counts devices; choose one that finds nodes, such as stay or pack.")
    by_type = rules_by_type(settings.policy_for.split(), settings.placement)
    return make_rules(settings.policy, placement, settings.migration, settings.cpu_share, settings.reservation, by_type)


def context_of(settings: OperatorSettings) -> ParseContext:
    """What users' objects leave open, as it was chosen for this cluster."""
    modes = {each.value: each for each in KubeShare}
    for flag, chosen, known in (
        ("--kubeshare", settings.kubeshare, tuple(modes)),
        ("--gpu-resource", settings.gpu_resource, GPUS),
    ):
        if chosen not in known:
            raise UserError(f"{flag} {chosen}: there is no such choice: {did_you_mean(chosen, known)}")
    return ParseContext(settings.default_image, settings.gpu_resource, modes[settings.kubeshare])


def terms_of(lease: LeaseSettings) -> Terms:
    """How the Lease is held: who holds it must have stopped before another one may take it."""
    terms = Terms(int(lease.duration_seconds), lease.renew_seconds, lease.retry_seconds)  # a Lease has whole seconds
    if not terms.retry < terms.renew_deadline < terms.lease:
        raise UserError(
            f"A Lease of {terms.lease} s that is given up after {terms.renew_deadline:g} s and tried every "
            f"{terms.retry:g} s lets two replicas act at once, or none; choose --lease-retry < --lease-renew < "
            "--lease-duration, such as 2, 10 and 15."
        )
    return terms


class Operator:
    """An operator that runs in this process. Use it as a context manager, or by `run`."""

    def __init__(self, settings: OperatorSettings, access: Access, say: Say) -> None:
        self.settings, self._say = settings, say
        self._clock = steady_clock()
        # What is wrong is said before anything is begun.
        self._rules, self._terms = rules_of(settings), terms_of(settings.lease)
        context, self._journal = context_of(settings), journal_at(settings, say)
        self.identity = settings.identity or socket.gethostname()
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
            ),
            Progress(growth_rule_of(self._rules)),
            BackendHooks(self._before_reconcile, self._count_write, self._count_event, self._note_mishap),
        )
        monitors = (f"{self._namespace(access)}/{_MONITOR}",) if settings.authenticate else ()
        leads = self._leads, self._other
        self.service = Service(self.backend, self.server, settings.listen, *leads, monitors, say)
        self._manual_moves = ManualMoves(self.backend, say)
        state = self.backend.state
        self._lessons = LearnedStore(self.server, self._namespace(access), state.progress, self._leads, say)
        if settings.leader_election:
            self._leadership = self._candidate(access)
        self.loop = self._round_loop()
        self._thread = threading.Thread(target=self._work, name="controller", daemon=True)
        self.failure: BaseException | None = None
        self._told: dict[Resource, str] = {}
        self._mishaps: set[str] = set()

    def _namespace(self, access: Access) -> str:
        """Where the Lease and the monitors are."""
        return self.settings.lease.namespace or access.namespace or "default"

    def _candidate(self, access: Access) -> Leadership:
        lease = self.settings.lease
        leadership = Leadership(
            self.server,
            self._namespace(access),
            lease.name,
            self.identity,
            terms=self._terms,
            on_lost=self._step_down,
        )
        leadership.notes = {RULES: msgspec.json.encode(operator_rules(self.settings)).decode()}
        return leadership

    # Life.

    def __enter__(self) -> Operator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Follow, serve, lead, decide; returns at once."""
        try:
            self.service.start()
            self.backend.start()
            if self._leadership is not None:
                self._leadership.address = self.service.address
                self._leadership.start()
            self._thread.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End deciding and give the Lease back; what trains goes on."""
        self._over.set()
        self.backend.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._lessons.keep()
        self.backend.drain(_DRAIN_SECONDS)  # what is under way must not arrive when another one leads
        if self._leadership is not None:
            self._leadership.stop()
        self.service.stop()
        self.server.close()
        if self._journal is not None:
            self._journal.__exit__(None, None, None)

    def wait(self) -> None:
        """Until it is over."""
        self._over.wait()

    def finish(self) -> None:
        """End it soon. Any thread may call, a signal too."""
        self._over.set()
        self.backend.close()

    def _may_write(self) -> bool:
        return self._leadership is None or self._leadership.may_write()

    def _leads(self) -> bool:
        return self.backend.is_ready and self._may_write()

    def _other(self) -> str:
        """Where another replica answers, if that one leads."""
        return self._leadership.others_address if self._leadership is not None else ""

    def _step_down(self) -> None:
        """Another one leads, or will: what we believe is worth nothing any more. Whoever restarts us begins anew."""
        self._say("The Lease is lost; this replica ends and waits for its turn when it is started again.")
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
        """Everything must be known, and the Lease held, before anything is decided."""
        while not self._over.is_set() and not self.backend.prepare(1.0):
            self._tell_troubles()
        self._tell_troubles()
        while self._leadership is not None and not self._over.is_set() and not self._leadership.may_write():
            self.backend.watch_only(_STAND_BY_SECONDS)
            self._tell_troubles()
        if self._leadership is not None and not self._over.is_set():
            self.backend.watch_only(_SETTLE_SECONDS)
        if not self._over.is_set():
            self._lessons.recall()
            self.backend.become_leader()
            self._say(f"Sterna leads as {self.identity} with {len(self.backend.state.capacity.names)} nodes.")
            for sentence in unknown_types(self._rules, self.backend.observe().nodes) if self._rules.by_type else ():
                self._say(sentence)

    # Hooks of the backend.

    def _before_reconcile(self, now: float) -> None:
        self.service.process_requests(now)
        self._manual_moves.process(now)
        self._keep_lessons(now)

    def _count_write(self, result: WriteResult) -> None:
        self.service.telemetry.count_answer(result)

    def _count_event(self, event: JobEvent, uid: str) -> None:
        self.service.telemetry.count(event, uid)

    def _keep_lessons(self, now: float) -> None:
        if self._lessons.look(now):
            self.backend.timers.set(now + PAUSE_SECONDS)

    def _tell_troubles(self) -> None:
        """What the server does not show us, once each."""
        told = self._told
        troubles = dict(self.backend.absent)
        troubles[_SERVER] = self.server.trouble
        troubles[LEASES] = self._leadership.trouble if self._leadership is not None else ""
        for resource, why in troubles.items():
            if why and told.get(resource) != why:
                self._say(why)
        self._told = {resource: why for resource, why in troubles.items() if why}

    def _round_loop(self) -> RoundLoop:
        settings, journal = self.settings, self._journal
        return RoundLoop(
            RateLimited(self.backend, settings.rate_limit_seconds or 0.0),
            self._rules,
            (self.service.specon_csv, *([] if journal is None else [ChangedRounds(journal)])),
            on_bug=self._note_mishap,
            on_error=self._report_error,
            on_round=self._note_round,
            stop=self._over,
        )

    def _note_round(self, seconds: float) -> None:
        self.service.telemetry.count_round(seconds)
        self._tell_troubles()

    def _report_error(self, error: Exception, retry_seconds: float) -> None:
        is_defect = not isinstance(error, SternaError)
        if is_defect:
            traceback.print_exception(error)
        why = (f"{type(error).__name__}: {error}" if is_defect else str(error)).removesuffix(".")
        self._say(f"Round failed; will retry in {retry_seconds:g} s: {why}.")
        self._tell_troubles()

    def _note_mishap(self, mishap: Exception) -> None:
        """One piece of news, or one job, could not be seen to; the others were. Told once."""
        what = f"{type(mishap).__name__}: {mishap}".removesuffix(".")
        if what not in self._mishaps and len(self._mishaps) < _MOST_MISHAPS:
            self._mishaps.add(what)
            traceback.print_exception(mishap)
            self._say(f"One job could not be seen to, and is looked at again later: {what}.")


_SERVER = Resource("", "", "", "")
"""Stands for the server as a whole."""


def journal_at(settings: OperatorSettings, say: Say) -> JournalWriter | None:
    """A new journal; an operator that was restarted begins another beside the old one."""
    if not settings.journal:
        return None
    path, number = Path(settings.journal), 1
    while path.exists() and path.is_file():
        number += 1
        path = Path(f"{settings.journal}.{number}")
    if number > 1:
        say(f"'{settings.journal}' is another operator's journal; this one's is '{path}'.")
    return JournalWriter(
        path,
        policy=settings.policy,
        placement=settings.placement or preferred_placement(settings.policy),
        migration=settings.migration,
        cpu_share=settings.cpu_share,
        reservation=settings.reservation,
        by_type=rules_by_type(settings.policy_for.split(), settings.placement),
    )


def say(sentence: str) -> None:
    with suppress(OSError):
        print(f"sterna: {sentence}", file=sys.stderr, flush=True)


def run(settings: OperatorSettings, ready: Callable[[Operator], None] | None = None) -> None:
    """Be the operator of a cluster until SIGTERM or SIGINT."""
    access = access_of(settings.kubeconfig, settings.context)
    operator = Operator(settings, access, say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: operator.finish())
    with operator:
        if ready is not None:
            ready(operator)
        operator.wait()
    if operator.failure is not None:
        raise operator.failure
