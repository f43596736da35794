"""`sterna describe`: everything about one job or node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.errors import UserError, did_you_mean

What = Annotated[str, typer.Argument(metavar="job|node", help="What it is.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Which one.")]

_LAST_EVENTS = 15


def command(what: What, name: Name, state: State = None, server: ServerUrl = None) -> None:
    """Print everything that is known of a job or a node.

    \b
    Examples:
      sterna describe job train-1
      sterna describe node node0
    """
    kind = what.rstrip("s")
    if kind not in ("job", "node"):
        raise UserError(f"There is nothing called '{what}' to describe; {did_you_mean(what, ('job', 'node'))}")
    cluster = client(state, server)
    found = cluster.get(f"{kind}s", name)
    for title, value in _job(found) if kind == "job" else _node(found):
        if value:
            print(f"{title + ':':<14} {value}")
    if kind == "job":
        _show_replicas(found["replicas"])
        _show_events(cluster.get("events", job=name)[-_LAST_EVENTS:])


def _job(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from sterna.api.durations import as_in_go
    from sterna.cli.render.columns import clock

    yield "Name", job["name"]
    yield "Namespace", job.get("namespace", "")
    yield "Kind", job["kind"]
    yield "State", job["state"].capitalize()
    yield "Why", job["reason"]
    yield "Workers", f"{job['workers']} of {job['minimum']} to {job['maximum']}, {job['request']} asked for"
    yield "Nodes", ", ".join(job["nodes"])
    yield "CpuShare", "" if job["cpu_share"] == 1 else f"{job['cpu_share']:.2f} of its part"
    yield "Category", job["category"]
    yield "User", job["user"]
    yield "Priority", str(job["priority"])
    yield "Submitted", clock(job["submitted_at"])
    yield "Started", clock(job["first_started_at"])
    yield "Ended", clock(job["ended_at"])
    yield "Waited", as_in_go(job["waited_seconds"])
    cpu = "" if "namespace" in job else f", {job['cpu_seconds']:.1f} s of CPU"  # a cluster does not count it
    yield "Ran", as_in_go(job["ran_seconds"]) + cpu
    yield "Progress", _progress(job)
    yield "Growth", job["growth"]
    yield "Ends in", _eta(job)
    yield "Attempts", f"{job['attempt']}, {job['restarts']} after failures, moved {job['moves']} times"
    yield "Work lost", as_in_go(job["lost_seconds"])
    yield "Exit code", "" if job["exit_code"] is None else str(job["exit_code"])
    for notice in job["notices"]:
        yield "Note", notice


def _progress(job: dict[str, Any]) -> str:
    if job["step"] is None:
        return "nothing reported"
    of = f" of {job['total']} ({100 * job['step'] / job['total']:.0f} %)" if job["total"] else ""
    value = "" if job["value"] is None else f", {job['metric']} {job['value']:.6g}"
    return f"step {job['step']}{of}{value}"


def _eta(job: dict[str, Any]) -> str:
    from sterna.api.durations import as_in_go

    if job["eta_seconds"] is None:
        return ""
    low, high = job["eta_low_seconds"], job["eta_high_seconds"]
    between = f", between {as_in_go(low)} and {as_in_go(high)}" if low is not None and high is not None else ""
    return as_in_go(job["eta_seconds"]) + between


def _node(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from sterna.cli.render.columns import in_bytes

    yield "Name", node["name"]
    yield "State", node["state"].capitalize()
    yield "CPUs", f"{node['cpus_free']:g} of {node['cpus']:g} free"
    yield "Devices", f"{node['devices_free']:g} of {node['devices']:g} free"
    yield "Memory", f"{in_bytes(node['memory_free_bytes'])} of {in_bytes(node['memory_bytes'])} free"
    yield "Shared", "yes: jobs may ask for more than it has" if node["shared"] else "no"
    yield "Control", node["control"]
    yield "Jobs", ", ".join(node["jobs"])


def _show_replicas(replicas: list[dict[str, Any]]) -> None:
    from sterna.cli.render.columns import show_columns

    if not replicas:
        return
    print("\nReplicas:")
    rows = [
        (each["name"], each["node"], each["state"], str(each["attempt"]), str(each.get("pid", "-")))
        for each in replicas
    ]
    show_columns(("  NAME", "NODE", "STATE", "ATTEMPT", "PID"), [(f"  {row[0]}", *row[1:]) for row in rows])


def _show_events(events: list[dict[str, Any]]) -> None:
    from sterna.cli.render.columns import clock, show_columns

    if not events:
        return
    print("\nEvents:")
    show_columns(("  TIME", "WHAT", "WHY"), [(f"  {clock(e['at'])}", e["kind"], e["sentence"]) for e in events])
