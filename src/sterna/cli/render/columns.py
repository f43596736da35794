"""Plain-text tables of jobs, nodes and events. Imports little: `sterna get` has to be quick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sterna.api.durations import format_go_duration

if TYPE_CHECKING:
    from sterna.service.views import EventView, JobView, NodeView

Row = Any
"""A `JobView`, `NodeView` or `EventView`."""
_GAP = "   "


def show_columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print("\n".join(align_columns(titles, rows)))


def align_columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return one line for the titles and one for each row, with columns as wide as needed."""
    lines = [list(titles), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _progress(job: JobView) -> str:
    step, total = job.step, job.total
    if job.state == "completed":
        return "100 %"
    if step is None:
        return "-"
    return f"{100 * min(step / total, 1):.0f} %" if total else f"step {step}"


def _times(job: JobView) -> tuple[str, str, str]:
    waited, ran = job.waited_seconds, job.ran_seconds
    return format_go_duration(waited), format_go_duration(ran), format_go_duration(waited + ran)


def _eta(job: JobView) -> str:
    eta, low, high = job.eta_seconds, job.eta_low_seconds, job.eta_high_seconds
    if eta is None:
        return "-"
    spread = f" ({format_go_duration(low)}-{format_go_duration(high)})" if low is not None and high is not None else ""
    return format_go_duration(eta) + spread


def _metric(job: JobView) -> str:
    return "-" if job.value is None else f"{job.metric} {job.value:.4g}"


JOB_TITLES = ("NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL", "PROGRESS")
WIDE_JOB_TITLES = (*JOB_TITLES, "KIND", "BOUNDS", "METRIC", "GROWTH", "ETA", "NODES", "WHY")
NODE_TITLES = ("NAME", "STATUS", "CPUS", "FREE", "DEVICES", "FREE", "MEMORY", "FREE", "JOBS")
WIDE_NODE_TITLES = (*NODE_TITLES, "SHARED", "CONTROL", "NAMES")
EVENT_TITLES = ("TIME", "JOB", "WHAT", "WHY")
TIMES = frozenset({"WAITING", "RUNNING", "TOTAL"})
"""Columns of elapsed time."""


def job_cells(job: JobView) -> tuple[str, ...]:
    """Voda's columns, and the progress."""
    return (job.name, job.state.capitalize(), str(job.workers), job.scheduler, *_times(job), _progress(job))


def wide_job_cells(job: JobView) -> tuple[str, ...]:
    bounds = f"{job.minimum}:{job.maximum}"
    nodes = ",".join(job.nodes) or "-"
    return (*job_cells(job), job.kind, bounds, _metric(job), job.growth, _eta(job), nodes, job.reason)


def node_cells(node: NodeView) -> tuple[str, ...]:
    memory = (format_bytes(node.memory_bytes), format_bytes(node.memory_free_bytes))
    cpus, devices = (
        (f"{node.cpus:g}", f"{node.cpus_free:g}"),
        (f"{node.devices:g}", f"{node.devices_free:g}"),
    )
    return (node.name, node.state.capitalize(), *cpus, *devices, *memory, str(len(node.jobs)))


def wide_node_cells(node: NodeView) -> tuple[str, ...]:
    names = ",".join(node.jobs) or "-"
    return (*node_cells(node), "yes" if node.shared else "no", node.control, names)


def event_cells(event: EventView) -> tuple[str, ...]:
    return (format_time(event.at), event.job or "-", event.kind, event.sentence)


Cells = Callable[[Any], tuple[str, ...]]
TABLES: dict[str, tuple[tuple[str, ...], Cells, tuple[str, ...], Cells]] = {
    "jobs": (JOB_TITLES, job_cells, WIDE_JOB_TITLES, wide_job_cells),
    "nodes": (NODE_TITLES, node_cells, WIDE_NODE_TITLES, wide_node_cells),
    "events": (EVENT_TITLES, event_cells, EVENT_TITLES, event_cells),
}
"""Titles and cells of each kind, plain and wide."""


def format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_time(at: float | None) -> str:
    """Format a time as local time of day, with the date if that is not today."""
    import time

    if at is None:
        return "-"
    then = time.localtime(at)
    is_today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", then)
