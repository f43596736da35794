"""Durations and assignments as text. Reasons are worded in `sterna.model.reason`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sterna.model.cluster import ANYWHERE, Assignment
from sterna.model.formatting import format_count
from sterna.model.snapshot import Snapshot


def duration(seconds: float) -> str:
    """Format a duration in at most two units."""
    if seconds < 600:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    unit, size, lesser, small = next(scale for scale in _SCALES if whole >= scale[1])
    rest = whole % size // small
    return f"{whole // size} {unit}" + (f" {rest} {lesser}" if rest else "")


_SCALES = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def by_node(snapshot: Snapshot, assignment: Assignment) -> dict[str, int]:
    """Return the number of workers by node name; the name is empty where devices are only counted."""
    counts = Counter[str]()
    for node, count in assignment.workers:
        counts["" if node == ANYWHERE else snapshot.nodes.name[node]] += count
    return dict(counts)


def node_list(assignment: Mapping[str, int]) -> str:
    """Return the nodes of an assignment; empty where devices are only counted."""
    if len(assignment) == 1:
        return next(iter(assignment))
    return ", ".join(f"{node} ({count})" for node, count in assignment.items())


def workers_on(assignment: Mapping[str, int]) -> str:
    where = node_list(assignment)
    return format_count(sum(assignment.values()), "worker") + (f" on {where}" if where else "")
