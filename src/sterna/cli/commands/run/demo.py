"""`sterna demo`: run the same dozen training jobs without a scheduler, by FIFO, and by Sterna, on this machine.

Starts a cluster for each phase, in a temporary folder and in this process, and removes everything however it ends. The
demo itself is in `experiments/demo/`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sterna
from sterna.cli.parsing.options import ReportFile
from sterna.cli.parsing.parameters import AsJson
from sterna.errors import Retry, UserError

if TYPE_CHECKING:
    from sterna.apps.daemon import Daemon
    from sterna.experiments.demo.run import DemoCluster, DemoPhase, PhaseResult, Watcher

Seconds = Annotated[float, typer.Option("--seconds", metavar="N", help="Approximate length of each phase.")]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=0, help="Most repetitions of disturbed phases.")]
Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the dashboard.  [default: 127.0.0.1:8470]")
]

_MOST_CORES = 2
"""On many cores a dozen jobs would have a core each, and nothing to share."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.0, 3600.0
_CLEANUP_SECONDS = 15.0
_POLL_SECONDS = 0.02
_TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def command(
    seconds: Seconds = 24.0,
    report: ReportFile = None,
    repeats: Repeats = 1,
    listen: Listen = "",
    as_json: AsJson = False,
) -> None:
    """Train a dozen real models on two cores of this machine, three times: shared alike, by FIFO, and by Sterna.

    Nothing is simulated: NumPy trains, the kernel divides the cores. A phase in which other programs used much of the
    CPU is repeated. Nothing is left behind, not even after Ctrl-C.

    \b
    Examples:
      sterna demo
      sterna demo --seconds 10 --report demo.html
      sterna demo --json
    """
    from sterna.cli.parsing.argv import command_line
    from sterna.cli.render.files import output_file
    from sterna.cli.render.output import console, show_json
    from sterna.experiments.demo.run import PHASES, Watcher
    from sterna.experiments.demo.screen import screen_for
    from sterna.experiments.demo.summary import document

    if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        bounds = f"{_SHORTEST_SECONDS:g} to {_LONGEST_SECONDS:,.0f}"
        raise UserError(f"--seconds {seconds:g}: give {bounds} seconds a phase.")
    if report is not None:
        from sterna.experiments.report.figures import plotly_objects

        plotly_objects()
    began = time.monotonic()
    screen = screen_for(console(), PHASES)
    with output_file(report, "--report") as write_report:
        results = _run(seconds, repeats, listen, Watcher() if as_json else screen)
        if report is not None:
            from sterna.experiments.demo.report import demo_page

            write_report(demo_page(results, command_line()))
    if as_json:
        show_json(document(results))
        return
    screen.compare(results, time.monotonic() - began)
    if report is not None:
        screen.print_line(f"The pictures: file://{os.path.abspath(report)}")


def _run(seconds: float, repeats: int, listen: str, watcher: Watcher) -> list[PhaseResult]:
    from sterna.experiments.demo.load import LoadMeter
    from sterna.experiments.demo.mix import make_tasks, measure_step_seconds
    from sterna.experiments.demo.run import Demo, phases

    allowed = sorted(os.sched_getaffinity(0))
    cores = allowed[:_MOST_CORES]
    with _interruptible(), _folder() as folder:
        watcher.prepare(len(cores), seconds)
        environment = os.environ | {"PYTHONPATH": _import_path()}
        work = make_tasks(measure_step_seconds(environment, len(cores)), seconds * len(cores))
        try:
            demo = Demo(work, _ClusterFactory(folder, listen).open, LoadMeter(cores, len(allowed)), watcher, repeats)
            return demo.run(phases(len(cores)))
        finally:
            watcher.close()


def _import_path() -> str:
    """Return a PYTHONPATH that contains this package, installed or not."""
    package = str(Path(sterna.__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), package]))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treat termination signals as Ctrl-C, so that everything is cleaned up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _TERMINATION_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Ignore signals during the cleanup, which takes a second or two."""
    numbers: tuple[Any, ...] = (signal.SIGINT, *_TERMINATION_SIGNALS)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sterna-demo-"))
    try:
        yield folder
    finally:
        with _ignore_signals():
            shutil.rmtree(folder, ignore_errors=True)


class _ClusterFactory:
    """Opens one cluster after the other, at the same address."""

    def __init__(self, folder: Path, listen: str) -> None:
        self._folder, self._listen = folder, listen
        self._count = 0

    @contextmanager
    def open(self, phase: DemoPhase) -> Iterator[DemoCluster]:
        from sterna.apps.daemon import Daemon, Options
        from sterna.experiments.demo.run import DemoCluster

        self._count += 1
        state = self._folder / f"{self._count}-{phase.key}"
        daemon = Daemon(Options(state, phase.nodes, phase.is_shared, phase.rules, self._listen))
        try:
            daemon.start()
            self._listen = daemon.url.rpartition("/")[2]
            yield DemoCluster(daemon.cluster, daemon.url, str(self._folder))
        finally:
            with _ignore_signals():
                _clean_up(daemon)


def _clean_up(daemon: Daemon) -> None:
    """End every job, the cluster, and the processes and control groups that would outlive it."""
    from sterna.backends.local.supervisor.launcher import Launcher

    service = daemon.cluster
    deadline = time.monotonic() + _CLEANUP_SECONDS
    with suppress(UserError, Retry):
        service.delete([job.name for job in service.jobs()])
    while service.jobs() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    left = [job.name for job in service.jobs()]
    daemon.stop()
    with suppress(Retry):
        Launcher(daemon.state).retire()
    with suppress(OSError, Retry):
        daemon.backend.deps.groups.close()
    if left:
        print(f"sterna: These jobs did not end within {_CLEANUP_SECONDS:g} s: {', '.join(left)}.", file=sys.stderr)
