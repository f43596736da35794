"""Tables of plain text, for commands that have to be quick: columns as wide as they need, the last one free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sterna.api.durations import as_in_go

Row = Mapping[str, Any]
_GAP = "   "


def show_columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print("\n".join(aligned(titles, rows)))


def aligned(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """One line for the titles and one for each row."""
    lines = [list(titles), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _share(job: Row) -> str:
    step, total = job["step"], job["total"]
    if job["state"] == "completed":
        return "100 %"
    if step is None:
        return "-"
    return f"{100 * min(step / total, 1):.0f} %" if total else f"step {step}"


def _times(job: Row) -> tuple[str, str, str]:
    waited, ran = job["waited_seconds"], job["ran_seconds"]
    return as_in_go(waited), as_in_go(ran), as_in_go(waited + ran)


def _eta(job: Row) -> str:
    eta, low, high = job["eta_seconds"], job["eta_low_seconds"], job["eta_high_seconds"]
    if eta is None:
        return "-"
    spread = f" ({as_in_go(low)}-{as_in_go(high)})" if low is not None and high is not None else ""
    return as_in_go(eta) + spread


def _metric(job: Row) -> str:
    return "-" if job["value"] is None else f"{job['metric']} {job['value']:.4g}"


JOB_TITLES = ("NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL", "PROGRESS")
WIDE_JOB_TITLES = (*JOB_TITLES, "KIND", "BOUNDS", "METRIC", "GROWTH", "ETA", "NODES", "WHY")
NODE_TITLES = ("NAME", "STATUS", "CPUS", "FREE", "DEVICES", "FREE", "MEMORY", "FREE", "JOBS")
WIDE_NODE_TITLES = (*NODE_TITLES, "SHARED", "CONTROL", "NAMES")
EVENT_TITLES = ("TIME", "JOB", "WHAT", "WHY")
TIMES = frozenset({"WAITING", "RUNNING", "TOTAL"})
"""Columns that change by themselves."""


def identity(job: Row) -> str:
    """By what a job is known when it has gone: in a Kubernetes cluster names are not enough."""
    return str(job.get("uid") or job["name"])


def job_cells(job: Row) -> tuple[str, ...]:
    """Voda's columns, and how far it is."""
    scheduler = job.get("scheduler", "local")
    return (job["name"], job["state"].capitalize(), str(job["workers"]), scheduler, *_times(job), _share(job))


def wide_job_cells(job: Row) -> tuple[str, ...]:
    bounds = f"{job['minimum']}:{job['maximum']}"
    nodes = ",".join(job["nodes"]) or "-"
    return (*job_cells(job), job["kind"], bounds, _metric(job), job["growth"], _eta(job), nodes, job["reason"])


def node_cells(node: Row) -> tuple[str, ...]:
    memory = (in_bytes(node["memory_bytes"]), in_bytes(node["memory_free_bytes"]))
    cpus, devices = (
        (f"{node['cpus']:g}", f"{node['cpus_free']:g}"),
        (f"{node['devices']:g}", f"{node['devices_free']:g}"),
    )
    return (node["name"], node["state"].capitalize(), *cpus, *devices, *memory, str(len(node["jobs"])))


def wide_node_cells(node: Row) -> tuple[str, ...]:
    names = ",".join(node["jobs"]) or "-"
    return (*node_cells(node), "yes" if node["shared"] else "no", node["control"], names)


def event_cells(event: Row) -> tuple[str, ...]:
    return (clock(event["at"]), event["job"] or "-", event["kind"], event["sentence"])


Cells = Callable[[Row], tuple[str, ...]]
TABLES: dict[str, tuple[tuple[str, ...], Cells, tuple[str, ...], Cells]] = {
    "jobs": (JOB_TITLES, job_cells, WIDE_JOB_TITLES, wide_job_cells),
    "nodes": (NODE_TITLES, node_cells, WIDE_NODE_TITLES, wide_node_cells),
    "events": (EVENT_TITLES, event_cells, EVENT_TITLES, event_cells),
}
"""For each thing: titles and cells, plain and wide."""


def in_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def clock(at: float | None) -> str:
    """A time of day where it is today, else with the date; local time."""
    import time

    if at is None:
        return "-"
    then = time.localtime(at)
    is_today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", then)
