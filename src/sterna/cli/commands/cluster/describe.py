"""`sterna describe`: print everything about one job or node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from sterna.service.views import EventView, JobView, NodeView, ReplicaView

Kind = Annotated[str, typer.Argument(metavar="job|node", help="Kind of object.")]
ObjectName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the job or node.")]

_LAST_EVENTS = 15


@expand_options
def command(what: Kind, name: ObjectName, cluster: ClusterOptions) -> None:
    """Print everything that is known of a job or a node.

    \b
    Examples:
      sterna describe job train-1
      sterna describe node node0
    """
    kind = what.rstrip("s")
    if kind not in ("job", "node"):
        raise UserError(f"There is nothing called '{what}' to describe; {did_you_mean(what, ('job', 'node'))}")
    service = cluster.connect()
    if kind == "node":
        _show_fields(_node(service.node(name)))
        return
    job = service.job(name)
    _show_fields(_job(job))
    _show_replicas(job.replicas)
    _show_events(service.events(name)[-_LAST_EVENTS:])


def _show_fields(fields: Iterator[tuple[str, str]]) -> None:
    for title, value in fields:
        if value:
            print(f"{title + ':':<14} {value}")


def _job(job: JobView) -> Iterator[tuple[str, str]]:
    from sterna.api.durations import format_go_duration
    from sterna.cli.render.columns import format_time

    yield "Name", job.name
    yield "Namespace", job.namespace
    yield "Kind", job.kind
    yield "State", job.state.capitalize()
    yield "Why", job.reason
    yield "Workers", f"{job.workers} of {job.minimum} to {job.maximum}, {job.request} asked for"
    yield "Nodes", ", ".join(job.nodes)
    yield "CPU share", "" if job.cpu_share == 1 else f"{job.cpu_share:.2f} of its part"
    yield "Category", job.category
    yield "User", job.user
    yield "Priority", str(job.priority)
    yield "Submitted", format_time(job.submitted_at)
    yield "Started", format_time(job.first_started_at)
    yield "Ended", format_time(job.ended_at)
    yield "Waited", format_go_duration(job.waited_seconds)
    cpu = "" if job.namespace else f", {job.cpu_seconds:.1f} s of CPU"  # not known of a Kubernetes cluster
    yield "Ran", format_go_duration(job.ran_seconds) + cpu
    yield "Progress", _progress(job)
    yield "Growth", job.growth
    yield "Ends in", _eta(job)
    yield "Attempts", f"{job.attempt}, {job.restarts} after failures, moved {job.moves} times"
    yield "Work lost", format_go_duration(job.lost_seconds)
    yield "Exit code", "" if job.exit_code is None else str(job.exit_code)
    for notice in job.notices:
        yield "Note", notice


def _progress(job: JobView) -> str:
    if job.step is None:
        return "nothing reported"
    of = f" of {job.total} ({100 * job.step / job.total:.0f} %)" if job.total else ""
    value = "" if job.value is None else f", {job.metric} {job.value:.6g}"
    return f"step {job.step}{of}{value}"


def _eta(job: JobView) -> str:
    from sterna.api.durations import format_go_duration

    if job.eta_seconds is None:
        return ""
    low, high = job.eta_low_seconds, job.eta_high_seconds
    between = (
        f", between {format_go_duration(low)} and {format_go_duration(high)}"
        if low is not None and high is not None
        else ""
    )
    return format_go_duration(job.eta_seconds) + between


def _node(node: NodeView) -> Iterator[tuple[str, str]]:
    from sterna.cli.render.columns import format_bytes

    yield "Name", node.name
    yield "State", node.state.capitalize()
    yield "CPUs", f"{node.cpus_free:g} of {node.cpus:g} free"
    yield "Devices", f"{node.devices_free:g} of {node.devices:g} free"
    yield "Memory", f"{format_bytes(node.memory_free_bytes)} of {format_bytes(node.memory_bytes)} free"
    yield "Shared", "yes: jobs may ask for more than it has" if node.shared else "no"
    yield "Control", node.control
    yield "Jobs", ", ".join(node.jobs)


def _show_replicas(replicas: list[ReplicaView]) -> None:
    from sterna.cli.render.columns import show_columns

    if not replicas:
        return
    print("\nReplicas:")
    rows = [(each.name, each.node, each.state, str(each.attempt), str(each.pid or "-")) for each in replicas]
    show_columns(("  NAME", "NODE", "STATE", "ATTEMPT", "PID"), [(f"  {row[0]}", *row[1:]) for row in rows])


def _show_events(events: list[EventView]) -> None:
    from sterna.cli.render.columns import format_time, show_columns

    if not events:
        return
    print("\nEvents:")
    show_columns(("  TIME", "WHAT", "WHY"), [(f"  {format_time(e.at)}", e.kind, e.sentence) for e in events])
