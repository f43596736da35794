"""`sterna top`: show the cluster, redrawn as it changes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.errors import UserError
from sterna.model.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from sterna.service.cluster_service import ClusterService
    from sterna.service.updates import Update
    from sterna.service.views import EventView, JobView, NodeView, PolicyView

Once = Annotated[bool, typer.Option("--once", help="Print once and exit.")]
_LAST_EVENTS = 8
_ORDER = {"running": 0, "stopping": 1, "waiting": 2, "deleting": 3, "failed": 4, "completed": 5}


@expand_options
def command(cluster: ClusterOptions, once: Once = False) -> None:
    """Show jobs with progress bars, nodes and the last events, as they change; Ctrl-C ends it.

    \b
    Example:
      sterna top
    """
    from rich.live import Live

    from sterna.cli.render.output import console

    service = cluster.connect()
    out = console()
    if once or not sys.stdout.isatty():
        out.print(_draw(_read(service), out.height))
        return
    screen = _Screen()
    with Live(console=out, auto_refresh=False, screen=True) as live:
        for update in service.watch():
            screen.apply(update)
            live.update(_draw(screen, out.height), refresh=True)


@dataclass
class _Screen:
    """The values on the screen."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    nodes: list[NodeView] = field(default_factory=list)
    rules: PolicyView | None = None
    events: list[EventView] = field(default_factory=list)

    def apply(self, update: Update) -> None:
        from sterna.service.updates import EventsUpdate, JobsUpdate, NodesUpdate

        if isinstance(update, JobsUpdate):
            self.jobs.update((job.identity, job) for job in update.changed)
            for identity in update.gone:
                self.jobs.pop(identity, None)
        elif isinstance(update, EventsUpdate):
            self.events = [*self.events, *update.events][-_LAST_EVENTS:]
        elif isinstance(update, NodesUpdate):
            self.nodes = update.nodes
        else:
            self.rules = update.rules


def _read(service: ClusterService) -> _Screen:
    jobs = {job.identity: job for job in service.jobs()}
    try:
        rules = service.rules()
    except UserError:  # a Kubernetes cluster whose operator does not publish them
        rules = None
    return _Screen(jobs, service.nodes(), rules, service.events())


def _draw(screen: _Screen, height: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    head = f"{screen.rules.policy} / {screen.rules.placement}" if screen.rules is not None else ""
    jobs = sorted(screen.jobs.values(), key=lambda job: (_ORDER.get(job.state, 9), job.submitted_at, job.name))
    most_jobs = max(3, height - len(screen.nodes) - _LAST_EVENTS - 9)
    more = f"and {len(jobs) - most_jobs} more" if len(jobs) > most_jobs else ""
    return Group(
        Text(f"Sterna: {format_count(len(jobs), 'job')}, {head}", style="bold"),
        _nodes(screen.nodes),
        _jobs(jobs[:most_jobs]),
        Text(more),
        _events(screen.events[-_LAST_EVENTS:]),
    )


def _new_table() -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)


def _nodes(nodes: list[NodeView]) -> Table:
    table = _new_table()
    for title in ("node", "state", "cpus used", "devices used", "jobs"):
        table.add_column(title, overflow="ellipsis", no_wrap=True)
    for node in nodes:
        cpus = f"{node.cpus - node.cpus_free:g} of {node.cpus:g}"
        devices = f"{node.devices - node.devices_free:g} of {node.devices:g}"
        table.add_row(node.name, node.state, cpus, devices, ", ".join(node.jobs))
    return table


def _jobs(jobs: list[JobView]) -> Table:
    from rich.progress_bar import ProgressBar

    from sterna.api.durations import format_go_duration

    table = _new_table()
    for title in ("job", "state", "workers", "progress", "metric", "growth", "ends in", "why"):
        table.add_column(title, overflow="ellipsis", no_wrap=True, ratio=2 if title == "why" else None)
    for job in jobs:
        done = 1.0 if job.state == "completed" else (job.step or 0) / job.total if job.total else 0.0
        metric = "" if job.value is None else f"{job.metric} {job.value:.4g}"
        eta = "" if job.eta_seconds is None else format_go_duration(job.eta_seconds)
        bar = ProgressBar(total=1.0, completed=min(done, 1.0), width=20)
        growth = "" if job.growth == "unknown" else job.growth
        table.add_row(job.name, job.state, str(job.workers), bar, metric, growth, eta, job.reason)
    return table


def _events(events: list[EventView]) -> Table:
    from sterna.cli.render.columns import format_time

    table = _new_table()
    for title in ("time", "job", "what happened"):
        table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1 if title.startswith("what") else None)
    for event in events:
        table.add_row(format_time(event.at), event.job, event.sentence)
    return table
