"""`sterna top`: the cluster at a glance, drawn anew as it changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.connect.client import Client, ServerUrl, State, client
from sterna.cli.render.columns import identity
from sterna.errors import UserError
from sterna.model.formatting import counted

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

Once = Annotated[bool, typer.Option("--once", help="Print it once and end.")]
_LAST_EVENTS = 8
_ORDER = {"running": 0, "stopping": 1, "waiting": 2, "deleting": 3, "failed": 4, "completed": 5}


def command(once: Once = False, state: State = None, server: ServerUrl = None) -> None:
    """Show jobs with progress bars, nodes, and the last decisions, as they change; Ctrl-C ends it.

    \b
    Example:
      sterna top
    """
    from rich.live import Live

    from sterna.cli.render.output import console

    cluster = client(state, server)
    seen: dict[str, Any] = {"jobs": {}, "nodes": [], "rules": {}, "events": []}
    if once or not sys.stdout.isatty():
        seen["jobs"] = {identity(job): job for job in cluster.get("jobs")}
        seen |= {kind: cluster.get(kind) for kind in ("nodes", "events")}
        seen["rules"] = _rules(cluster)
        console().print(_drawn(seen, console().height))
        return
    out = console()
    with Live(console=out, auto_refresh=False, screen=True) as live:
        for kind, value in cluster.watch():
            _take(seen, kind, value)
            live.update(_drawn(seen, out.height), refresh=True)


def _rules(cluster: Client) -> Any:
    """Those of a Kubernetes cluster may be unknown, which is no reason to show nothing."""
    try:
        return cluster.get("rules")
    except UserError:
        return {}


def _take(seen: dict[str, Any], kind: str, value: Any) -> None:
    if kind == "jobs":
        seen["jobs"].update((identity(job), job) for job in value["changed"])
        for name in value["gone"]:
            seen["jobs"].pop(name, None)
    elif kind == "events":
        seen["events"] = [*seen["events"], *value][-_LAST_EVENTS:]
    else:
        seen[kind] = value


def _drawn(seen: dict[str, Any], height: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    rules = seen["rules"]
    head = f"{rules.get('policy', '')} / {rules.get('placement', '')}" if rules else ""
    jobs = sorted(
        seen["jobs"].values(), key=lambda job: (_ORDER.get(job["state"], 9), job["submitted_at"], job["name"])
    )
    room = max(3, height - len(seen["nodes"]) - _LAST_EVENTS - 9)
    more = f"and {len(jobs) - room} more" if len(jobs) > room else ""
    return Group(
        Text(f"Sterna: {counted(len(jobs), 'job')}, {head}", style="bold"),
        _nodes(seen["nodes"]),
        _jobs(jobs[:room]),
        Text(more),
        _events(seen["events"][-_LAST_EVENTS:]),
    )


def _plain() -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)


def _nodes(nodes: list[dict[str, Any]]) -> Table:
    table = _plain()
    for title in ("node", "state", "cpus used", "devices used", "jobs"):
        table.add_column(title, overflow="ellipsis", no_wrap=True)
    for node in nodes:
        cpus = f"{node['cpus'] - node['cpus_free']:g} of {node['cpus']:g}"
        devices = f"{node['devices'] - node['devices_free']:g} of {node['devices']:g}"
        table.add_row(node["name"], node["state"], cpus, devices, ", ".join(node["jobs"]))
    return table


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    from rich.progress_bar import ProgressBar

    from sterna.api.durations import as_in_go

    table = _plain()
    for title in ("job", "state", "workers", "progress", "metric", "growth", "ends in", "why"):
        table.add_column(title, overflow="ellipsis", no_wrap=True, ratio=2 if title == "why" else None)
    for job in jobs:
        done = 1.0 if job["state"] == "completed" else (job["step"] or 0) / job["total"] if job["total"] else 0.0
        metric = "" if job["value"] is None else f"{job['metric']} {job['value']:.4g}"
        eta = "" if job["eta_seconds"] is None else as_in_go(job["eta_seconds"])
        bar = ProgressBar(total=1.0, completed=min(done, 1.0), width=20)
        growth = "" if job["growth"] == "unknown" else job["growth"]
        table.add_row(job["name"], job["state"], str(job["workers"]), bar, metric, growth, eta, job["reason"])
    return table


def _events(events: list[dict[str, Any]]) -> Table:
    from sterna.cli.render.columns import clock

    table = _plain()
    for title in ("time", "job", "what happened"):
        table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1 if title.startswith("what") else None)
    for event in events:
        table.add_row(clock(event["at"]), event["job"], event["sentence"])
    return table
