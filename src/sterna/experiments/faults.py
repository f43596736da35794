"""Faults of a scenario: parsed from options, drawn from a seed, and merged.

The simulated backend applies them to jobs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from sterna.backends.simulated.costs import Fault, random_faults
from sterna.errors import UserError
from sterna.model.cluster import MILLI, Nodes, ResourceKind
from sterna.parse_number import real
from sterna.workloads.domain import LARGEST
from sterna.workloads.trace import Trace

_MOST_FAULTS = 1_000_000
_HORIZON_FACTOR = 4.0
"""Random faults are drawn for this multiple of the time that the trace takes on a full cluster."""


def parse_fault(text: str, nodes: Nodes) -> Fault:
    """Parse `NODE@SECONDS+SECONDS`; without the second number the node never comes back."""
    match = re.fullmatch(r"\s*(.+?)\s*@([^@+]+?)(?:\+([^@]+))?\s*", text)
    if not match:
        raise UserError(f"--fail {text}: write NODE@SECONDS+SECONDS, for example {nodes.name[0]}@3600+600.")
    at = _seconds(text, match[2])
    length = _seconds(text, match[3]) if match[3] else math.inf
    if not length:
        raise UserError(f"--fail {text}: a fault lasts longer than 0 seconds.")
    return Fault(_node(text, match[1], nodes), at, length)


def late_faults(texts: Sequence[str], nodes: Nodes, end_seconds: float) -> list[str]:
    """Return a notice for each fault of `--fail` that starts after every job has ended."""
    return [
        f"--fail {text}: every job had ended by then, at {end_seconds:,.0f} s, so nothing was lost."
        for text in texts
        if parse_fault(text, nodes).at_seconds >= end_seconds
    ]


def draw_faults(trace: Trace, nodes: Nodes, mtbf_seconds: float, repair_seconds: float, seed: int) -> list[Fault]:
    """Draw faults of every node for the expected length of the trace."""
    horizon = _horizon(trace, nodes, mtbf_seconds, repair_seconds)
    expected = len(nodes) * horizon / (mtbf_seconds + repair_seconds)
    if expected > _MOST_FAULTS:
        raise UserError(
            f"--mtbf {mtbf_seconds:g}: {expected:,.0f} faults are to be expected, more than the simulator takes "
            f"({_MOST_FAULTS:,}); give a longer time between faults."
        )
    first = float(trace.submit_seconds[0])
    faults = random_faults(len(nodes), mtbf_seconds, repair_seconds, horizon, seed)
    return [Fault(fault.node, fault.at_seconds + first, fault.for_seconds) for fault in faults]


def merge_faults(faults: Sequence[Fault], first_seconds: float) -> tuple[Fault, ...]:
    """Cut faults at `first_seconds` and merge overlapping ones of a node."""
    by_node = sorted(faults, key=lambda fault: (fault.node, fault.at_seconds))
    merged = []
    for node, group in groupby(by_node, key=lambda fault: fault.node):
        merged += [Fault(node, start, end - start) for start, end in _merge_spans(list(group), first_seconds)]
    return tuple(sorted(merged, key=lambda fault: (fault.at_seconds, fault.node)))


def _merge_spans(faults: Sequence[Fault], first_seconds: float) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    for fault in faults:
        start, end = max(fault.at_seconds, first_seconds), fault.at_seconds + fault.for_seconds
        if end <= start:
            continue
        if spans and start <= spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return spans


def _horizon(trace: Trace, nodes: Nodes, mtbf_seconds: float, repair_seconds: float) -> float:
    devices = int(nodes.capacity[ResourceKind.DEVICES].sum()) / MILLI
    busy = float((trace.duration_seconds * trace.workers * trace.devices_per_worker).sum()) / devices
    span = float(np.ptp(trace.submit_seconds)) + busy + float(trace.duration_seconds.max())
    return _HORIZON_FACTOR * span * (1.0 + repair_seconds / mtbf_seconds)


def _seconds(text: str, number: str) -> float:
    try:
        value = real(number)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LARGEST:
        raise UserError(
            f"--fail {text}: '{number.strip()}' is not a number of seconds from 0 to 1e15; write NODE@SECONDS+SECONDS."
        )
    return value


def _node(text: str, name: str, nodes: Nodes) -> int:
    if name in nodes.name:
        return nodes.name.index(name)
    if name.isascii() and name.isdecimal() and int(name) < len(nodes):
        return int(name)
    first, last = nodes.name[0], nodes.name[-1]
    known = f"the nodes are {first} to {last}" if len(nodes) > 1 else f"the only node is {first}"
    raise UserError(f"--fail {text}: there is no node '{name}'; {known}, so write for example {last}@3600+600.")
