"""The daemon of a local cluster, `sterna up`.

It locks its state folder, recovers the replicas of its predecessor, and runs the round loop and the API side by side.
It may be killed at any moment: replicas go on, and the next daemon finds them again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

import sterna
from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.cgroups.select import Control, find_control
from sterna.backends.local.cluster import LocalCluster
from sterna.backends.local.jobs.environment import EnvironmentConfig, link_agent
from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.backends.local.jobs.launching import LocalDeps
from sterna.backends.local.kernel.atomic_files import replace_file
from sterna.backends.local.kernel.proc_table import boot_id, process
from sterna.backends.local.kernel.wakeups import EpollWakeups
from sterna.backends.local.recovery import recover
from sterna.backends.local.store.database import Database
from sterna.backends.local.store.job_store import JobStore
from sterna.backends.local.store.journal import StoredJournal
from sterna.backends.local.store.node_slices import Machine, Slices, slice_machine, this_machine
from sterna.backends.local.store.records import StatePaths
from sterna.backends.local.supervisor.launcher import Launcher
from sterna.backends.local.supervisor.zygote_client import check_state_folder
from sterna.control.clock import steady_clock
from sterna.control.health import STALL_SECONDS, HealthStatus, LoopWatchdog
from sterna.control.rate_limit import RateLimited
from sterna.control.repeat_limit import RepeatLimit
from sterna.control.round_loop import ChangedRounds, RoundLoop
from sterna.control.specon_csv import SpeconCsvFile
from sterna.engine.decide import Rules
from sterna.errors import Bug, SternaError, UserError
from sterna.service.views import EventView, Explanation, JobView, PolicyView
from sterna.settings import DEFAULT_PLACEMENT, DEFAULT_POLICY, is_count_only
from sterna.wiring import growth_rule_of, make_rules, preferred_placement

if TYPE_CHECKING:
    from sterna.api import Encryption, Server

_log = logging.getLogger(__name__)

LOCK, ABOUT, SOCKET, TOKEN, DATABASE = "daemon.lock", "daemon.json", "api.sock", "token", "sterna.db"

_DEFAULT = PolicyView(DEFAULT_POLICY, DEFAULT_PLACEMENT, "none", "equal", "serving", 0.0)
_SHARED = PolicyView("fifo", "spread", "balance:interval=2", "finish", "serving", 0.0)
"""Default rules of shared nodes, where all jobs run and the rules divide the CPU."""
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Options:
    """Options of `sterna up`."""

    state: Path
    nodes: str = "auto"
    shared: bool = False
    rules: tuple[tuple[str, str], ...] = ()
    """Chosen rules by field of `PolicyView`; the others keep their last value or the default."""
    listen: str = ""
    as_submitter: bool = False
    evict_unsaved: bool = False
    backoff: RestartBackoff | None = None
    has_api: bool = True


class Daemon:
    """A local cluster in this process. Use it as a context manager, or by `run`."""

    def __init__(self, options: Options, encryption: Encryption | None = None) -> None:
        self.options, self._encryption = options, encryption
        self.state = _make_state_folder(options.state.expanduser().absolute())
        self._lock = _lock_state_folder(self.state)
        check_state_folder(self.state)
        self._clock = steady_clock()
        machine = this_machine()
        slices = slice_machine(options.nodes, machine, options.shared)
        self.database = Database(self.state / DATABASE)
        self._server: Server | None = None
        try:
            self._assemble(slices, machine)
        except BaseException:
            self.database.close()
            os.close(self._lock)
            raise

    def _assemble(self, slices: Slices, machine: Machine) -> None:
        paths = StatePaths(self.state)
        paths.jobs.mkdir(mode=0o700, exist_ok=True)
        link_agent(paths)
        view = self._choose_rules(slices)
        rules = make_local_rules(view)
        self.store = JobStore(self.database, slices, self._clock, growth_rule_of(rules))
        control = find_control(self.state)
        _sweep(control, self.store)
        _make_nodes(control, slices)
        self._launcher = Launcher(self.state)
        deps = LocalDeps(self._launcher, control, EnvironmentConfig(paths), self.options.as_submitter)
        self.backend = LocalBackend(
            self.store, deps, EpollWakeups(), backoff=self.options.backoff, evicts_unsaved=self.options.evict_unsaved
        )
        self.cluster = LocalCluster(self.backend, view, make_local_rules, explain_from_journal)
        self._stop_event = threading.Event()
        self._rules: Rules | None = None
        self._repeats = RepeatLimit()
        self._rate_limit = RateLimited(self.backend, view.rate_limit_seconds)
        self._journal = StoredJournal(self.database, view)
        changes = ChangedRounds(self._journal)
        self.watchdog = LoopWatchdog(STALL_SECONDS + view.rate_limit_seconds)
        self._is_started = False
        self.loop = RoundLoop(
            self._rate_limit,
            self._current_rules,
            (changes, SpeconCsvFile(self.state / "distribution.csv")),
            on_bug=self._report_bug,
            on_error=self._report_error,
            on_round=self._finish_round,
            revisit_at=lambda: min(changes.due_at, self._clock() + self.watchdog.period_seconds),
            stop=self._stop_event,
        )
        self._thread = threading.Thread(target=self.loop.run, name="controller", daemon=True)
        self._warm_thread = threading.Thread(target=self._warm, name="warming", daemon=True)

    def _choose_rules(self, slices: Slices) -> PolicyView:
        """Return the rules: options over the stored ones over defaults."""
        kept = self.database.read("SELECT value FROM settings WHERE name = 'rules'")
        usual = _SHARED if slices.is_shared else _DEFAULT
        view = msgspec.json.decode(kept[0][0], type=PolicyView) if kept else msgspec.structs.replace(usual)
        given = dict(self.options.rules)
        if "policy" in given and "placement" not in given and not slices.is_shared:
            given["placement"] = preferred_placement(given["policy"])
        for name, value in given.items():
            setattr(view, name, float(value) if name == "rate_limit_seconds" else value)
        return view

    # Life cycle.

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Recover, start the loop and the API; return when clients can connect."""
        with suppress(OSError, ValueError):
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # one descriptor per running process
        try:
            recover(self.backend)
            # Jobs get the address of the API in their environment: start none before it is known.
            self.backend.hold(True)
            self._warm_thread.start()
            self._thread.start()
            if self.options.has_api:
                self._start_api()
            self.backend.hold(False)
            self._is_started = True
            self._write_address()
        except BaseException:
            self.stop()
            raise

    def _warm(self) -> None:
        """Start a zygote before the first job; if that fails, the start of a job reports why."""
        with suppress(SternaError):
            self._launcher.warm()

    def _start_api(self) -> None:
        from sterna.api import serve

        server = serve(
            self.cluster,
            self.state / SOCKET,
            self.options.listen,
            self.state / TOKEN,
            health=self,
            encryption=self._encryption,
            as_submitter=self.options.as_submitter,
        )
        self._server = server
        token = "" if server.token_file is None else str(server.token_file)
        certificate = self._encryption.certificate if self._encryption else ""
        self.backend.deps.environment.set_api(server.url, token, certificate)

    def _write_address(self) -> None:
        me = process(os.getpid())
        about = {
            "pid": os.getpid(),
            "start_ticks": me.ticks if me is not None else 0,
            "boot_id": boot_id(),
            "url": self.url,
            "socket": str(self.state / SOCKET),
            "version": sterna.__version__,
        }
        replace_file(self.state, ABOUT, msgspec.json.encode(about) + b"\n", 0o600, durable=False)

    @property
    def url(self) -> str:
        return self._server.url if self._server is not None else ""

    def stop(self) -> None:
        """Stop the loop and the API; training goes on."""
        self._stop_event.set()
        self.backend.close()
        for thread in (self._thread, self._warm_thread):
            if thread.is_alive():
                thread.join(_STOP_SECONDS)
        self.store.close()
        if self._server is not None:
            self._server.stop()
        self.store.save_learned_curves()
        self.backend.watcher.save_positions()
        if not self.store.live:
            self._launcher.retire()
        self.backend.deps.groups.close()
        self.database.close()
        (self.state / ABOUT).unlink(missing_ok=True)
        os.close(self._lock)

    # Health checks.

    def check_live(self) -> HealthStatus:
        return self.watchdog.check_live()

    def check_ready(self) -> HealthStatus:
        if not self._is_started:
            return HealthStatus(False, "The daemon is starting.")
        return HealthStatus(True, "ok")

    # The loop.

    def _current_rules(self) -> Rules:
        """Return the rules in force; when they were changed, first change everything that depends on them."""
        rules = self.cluster.rules_in_force
        if rules is not self._rules:
            view = self.cluster.rules()
            self.store.set_growth_rule(growth_rule_of(rules))
            self._journal.change_rules(view)
            self._rate_limit.set_interval(view.rate_limit_seconds)
            _log.debug("Rules in force: %s", view)
            self.watchdog.stall_seconds = STALL_SECONDS + view.rate_limit_seconds
            self._rules = rules
        return rules

    def _finish_round(self, seconds: float) -> None:
        self.watchdog.beat()
        _log.debug("Round finished in %.4f s", seconds, extra={"round": self.loop.rounds})

    def _report_bug(self, bug: Bug) -> None:
        if self._repeats.admits(str(bug)):
            _log.error("Plan applied without one job, about which it is wrong: %s", bug)
            self.store.note("", "error", f"A plan was applied without one job, about which it is wrong: {bug}.")

    def _report_error(self, error: Exception, retry_seconds: float) -> None:
        is_defect = not isinstance(error, SternaError)
        why = (f"{type(error).__name__}: {error}" if is_defect else str(error)).removesuffix(".")
        traced, extra = error if is_defect else None, {"round": self.loop.rounds}
        _log.error("Round failed; will retry in %g s: %s", retry_seconds, why, exc_info=traced, extra=extra)
        with suppress(SternaError):  # the database may be what failed
            self.store.note("", "error", f"A round failed and will be retried: {why}.")


def make_local_rules(view: PolicyView) -> Rules:
    """Make rules for real nodes, on which every worker is placed."""
    if is_count_only(view.placement):
        raise UserError("The placement 'none' only counts devices; choose one that finds nodes, such as stay or pack.")
    return make_rules(view.policy, view.placement, view.migration, view.cpu_share, view.reservation)


def explain_from_journal(journal: Path, job: JobView, events: Sequence[EventView], now: float) -> Explanation:
    from sterna.explain.current_state import continue_to_now
    from sterna.explain.narrative import explain

    return continue_to_now(msgspec.convert(explain(journal, job.name), Explanation), job, events, now)


def _make_state_folder(path: Path) -> Path:
    """Create the state folder, if it is missing, so that only its owner can enter it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UserError(
            f"The state folder '{path}' cannot be used: {error.strerror}; choose another one with --state."
        ) from None
    return path


def _lock_state_folder(state: Path) -> int:
    """Lock the state folder; the kernel releases the lock when this process exits."""
    descriptor = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"A daemon runs on '{state}' already; use it as it is, end it with sterna down, or choose another folder "
            "with --state."
        ) from None
    return descriptor


def _sweep(control: Control, store: JobStore) -> None:
    """Remove empty control groups of a killed predecessor; keep those of live replicas."""
    attempts = [attempt for job in store.live.values() if (attempt := job.record.attempt) is not None]
    live = [replica for attempt in attempts for replica in attempt.live]
    control.sweep({replica.group for replica in live}, {replica.node for replica in live})


def _make_nodes(control: Control, slices: Slices) -> None:
    for node in slices.nodes:
        control.make_node(node.name, node.cores, node.memory_bytes if node.limits_memory else None)


def run(
    state: str | Path,
    *,
    nodes: str = "auto",
    shared: bool = False,
    listen: str = "",
    policy: str = "",
    placement: str = "",
    migration: str = "",
    cpu_share: str = "",
    reservation: str = "",
    rate_limit_seconds: float | None = None,
    as_submitter: bool = False,
    evict_unsaved: bool = False,
    encryption: Encryption | None = None,
    ready: Callable[[Daemon], None] | None = None,
) -> None:
    """Run the daemon of this state folder until SIGTERM or SIGINT. `ready` is called when clients can connect."""
    given: dict[str, Any] = {
        "policy": policy,
        "placement": placement,
        "migration": migration,
        "cpu_share": cpu_share,
        "reservation": reservation,
        "rate_limit_seconds": "" if rate_limit_seconds is None else str(rate_limit_seconds),
    }
    rules = tuple((name, value) for name, value in given.items() if value)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    options = Options(Path(state), nodes, shared, rules, listen, as_submitter, evict_unsaved)
    with Daemon(options, encryption) as daemon:
        if ready is not None:
            ready(daemon)
        over.wait()
