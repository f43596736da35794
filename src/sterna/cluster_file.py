"""Cluster files: a cluster written down by a user becomes a snapshot.

Every key is checked before anything is decided: each mapping is read through `_Entry`, which knows its place in the
file and rejects unknown keys. The keys are documented in docs/cluster-files.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.errors import UserError, did_you_mean
from sterna.model.cluster import ANYWHERE, MILLI, Assignment, Nodes, ResourceKind, Shape, Shapes
from sterna.model.formatting import format_count
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY
from sterna.model.snapshot import NEVER, ColumnSource, JobKey, Jobs, Snapshot, compute_totals
from sterna.model.speedup import LINEAR, Curves, Repaired, concave
from sterna.workloads.domain import LARGEST

_MOST = 1_000_000
"""Upper bound on workers of a job and devices of a node."""
_UNCOUNTED_CPUS = 1 << 40
_UNCOUNTED_BYTES = 1 << 50
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*?)B?\s*", re.ASCII)
_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_TOP_KEYS = ("now", "nodes", "jobs", "last_action")
_NODE_KEYS = ("name", "gpus", "cpus", "memory", "labels", "taints", "cordoned")
_JOB_KEYS = (
    "name", "submit", "min", "max", "workers", "remaining", "speedup", "priority", "first_start", "attained", "running",
    "gpus", "cpus", "memory", "ps", "selector", "tolerations", "waiting_since", "executed",
)  # fmt: skip
_PS_KEYS = ("replicas", "cpus", "memory", "running")


@dataclass(frozen=True)
class ClusterFile:
    """Snapshot of a cluster file, and warnings about what was corrected."""

    snapshot: Snapshot
    notices: Sequence[str]


def read_cluster(document: Mapping[str, object], counts_only: bool) -> ClusterFile:
    top = _FileEntry("the description", document, _TOP_KEYS)
    now = top.number("now", 0.0)
    nodes = _nodes(top.entries("nodes", "node", _NODE_KEYS))
    jobs = sorted(
        (_job(entry) for entry in top.entries("jobs", "job", _JOB_KEYS)), key=lambda job: (job.submit, job.name)
    )
    _refuse_duplicates("job", [job.name for job in jobs])
    shapes = Shapes(tuple(dict.fromkeys(job.shape for job in jobs)) or (Shape(),))
    curves = [(1.0,), *dict.fromkeys(job.curve for job in jobs if job.curve)]
    assignments, room = _assign(jobs, nodes)
    nodes = replace(nodes, free=room.free, shared=room.shared)
    if counts_only:
        assignments = {key: Assignment(((ANYWHERE, assignment.size),)) for key, assignment in assignments.items()}
    table = Jobs(ColumnSource([job.name for job in jobs], _columns(jobs, shapes, curves)))
    totals = compute_totals(table, nodes, shapes)
    last_action = top.number("last_action", 0.0) if "last_action" in top else -NEVER
    snapshot = Snapshot(now, table, nodes, shapes, Curves(tuple(curves)), assignments, *totals, last_action=last_action)
    early = [job for job in jobs if job.submit > now] if "now" in top else []
    return ClusterFile(snapshot, [*(job.notice for job in jobs if job.notice), *_warn_early(early, now)])


def _warn_early(early: Sequence[_Job], now: float) -> list[str]:
    """Warn about jobs submitted after `now`. They are not rejected: users who only care about order number their jobs
    and leave `now` at 0."""
    if not early:
        return []
    names = ", ".join(f"'{job.name}'" for job in early[:3]) + (" and others" if len(early) > 3 else "")
    return [f"Submitted after now ({now:g}), but planned for as if there already: {names}."]


@dataclass(frozen=True)
class _Job:
    """One job of a cluster file, checked by itself."""

    where: str
    name: str
    submit: float
    minimum: int
    maximum: int
    workers: int
    remaining: float
    curve: tuple[float, ...]
    """Empty: linear."""
    notice: str
    priority: int
    first_start: float
    waiting_since: float
    attained: float
    executed: float
    shape: Shape
    running: Mapping[str, int]
    ps_running: Mapping[str, int]


def _columns(jobs: Sequence[_Job], shapes: Shapes, curves: Sequence[tuple[float, ...]]) -> dict[str, npt.NDArray[Any]]:
    shape_code = {shape: code for code, shape in enumerate(shapes.rows)}
    curve_code = {curve: code for code, curve in enumerate(curves) if code != LINEAR}
    whole = {
        "key": list(range(len(jobs))),
        "priority": [job.priority for job in jobs],
        "minimum": [job.minimum for job in jobs],
        "maximum": [job.maximum for job in jobs],
        "request": [job.workers for job in jobs],
        "workers": [sum(job.running.values()) for job in jobs],
        "shape": [shape_code[job.shape] for job in jobs],
        "curve": [curve_code[job.curve] if job.curve else LINEAR for job in jobs],
        "promotions": [0 for _ in jobs],
    }
    real = ("submit", "remaining", "first_start", "waiting_since", "attained", "executed")
    columns: dict[str, npt.NDArray[Any]] = {name: np.array(values, dtype=np.int64) for name, values in whole.items()}
    return columns | {name: np.array([getattr(job, name) for job in jobs], dtype=np.float64) for name in real}


def _job(entry: _FileEntry) -> _Job:
    submit = entry.number("submit", 0.0)
    low, high, workers = _bounds(entry)
    running = entry.counts("running")
    held = sum(running.values())
    if held and not low <= held <= high:
        raise UserError(
            f"{entry.where}: it runs with {format_count(held, 'worker')}, outside {low} to {high}; correct either."
        )
    shape, ps_running = _shape(entry, running)
    curve, notice = _curve(entry)
    return _Job(
        entry.where,
        entry.name,
        submit,
        low,
        high,
        workers,
        entry.number("remaining", 1.0, above=True),
        curve,
        notice,
        entry.count("priority", 0, least=LEAST_PRIORITY, most=MOST_PRIORITY),
        entry.number("first_start", submit) if held or "first_start" in entry else NEVER,
        entry.number("waiting_since", submit),
        entry.number("attained", 0.0),
        entry.number("executed", 0.0),
        shape,
        running,
        ps_running,
    )


def _bounds(entry: _FileEntry) -> tuple[int, int, int]:
    """Return minimum, maximum and requested workers; absent ones follow from the others."""
    given = entry.count("workers", 0) if "workers" in entry else 0
    low = entry.count("min", given or 1)
    high = entry.count("max", given or low)
    if low > high:
        bound = "max" if "max" in entry else "workers"
        raise UserError(f"{entry.where}: min {low} is above {bound} {high}; make it at most as large.")
    workers = given or low
    if not low <= workers <= high:
        raise UserError(f"{entry.where}: workers {workers} is not between min {low} and max {high}; correct one.")
    return low, high, workers


def _curve(entry: _FileEntry) -> tuple[tuple[float, ...], str]:
    """Return the speed-ups, made concave, and a warning if they were not."""
    if "speedup" not in entry:
        return (), ""
    raw = entry.items("speedup")
    if not raw:
        raise entry.refusal("speedup", raw, "speed-ups at 1, 2, .. workers, like [1, 1.9, 2.7]")
    for value in raw:
        if not _is_number(value) or not 1e-12 < value < 1e12:
            raise entry.refusal("speedup", value, "numbers above 0, like [1, 1.9, 2.7]")
    curve = concave(raw)
    if not isinstance(curve, Repaired):
        return curve, ""
    shown = ", ".join(f"{speed:.4g}" for speed in curve[:8]) + (", .." if len(curve) > 8 else "")
    return tuple(curve), f"The speed-up curve of job '{entry.name}' was not concave; it is used as {shown}."


def _shape(entry: _FileEntry, running: Mapping[str, int]) -> tuple[Shape, Mapping[str, int]]:
    """Return the requests of a worker, and the nodes of a running job's parameter servers: by default that of most of
    its workers."""
    ps = entry.inner("ps", _PS_KEYS)
    replicas = ps.count("replicas", 1) if "ps" in entry else 0
    ps_running = ps.counts("running")
    if not ps_running and running and replicas:
        ps_running = {max(running, key=running.__getitem__): replicas}
    if ps_running and (not running or sum(ps_running.values()) != replicas):
        raise UserError(f"{ps.where}: {sum(ps_running.values())} of {replicas} parameter servers run; list all.")
    shape = Shape(
        devices=_devices(entry),
        cpus=entry.cpus("cpus", 0),
        memory_bytes=entry.bytes("memory", 0),
        ps=replicas,
        ps_cpus=ps.cpus("cpus", 0),
        ps_memory_bytes=ps.bytes("memory", 0),
        selector=tuple(sorted(entry.labels("selector").items())),
        tolerations=frozenset(entry.texts("tolerations")),
    )
    return shape, ps_running


def _devices(entry: _FileEntry) -> int:
    value = entry.number("gpus", 1.0, most=_MOST)
    units = round(value * MILLI)
    if (value and not units) or (value > 1 and value != int(value)):
        raise entry.refusal("gpus", value, "a whole number, or a fraction between 0.001 and 1")
    return units


def _nodes(entries: Sequence[_FileEntry]) -> Nodes:
    if not entries:
        raise UserError("the description has no nodes: list at least one, e.g. {name: node1, gpus: 8}.")
    _refuse_duplicates("node", [entry.name for entry in entries])
    entries = sorted(entries, key=lambda entry: entry.name)
    total = np.zeros((len(ResourceKind), len(entries)), dtype=np.int64)
    total[ResourceKind.DEVICES] = [entry.count("gpus", 0, least=0) * MILLI for entry in entries]
    total[ResourceKind.CPUS] = [entry.cpus("cpus", _UNCOUNTED_CPUS) for entry in entries]
    total[ResourceKind.MEMORY] = [entry.bytes("memory", _UNCOUNTED_BYTES) for entry in entries]
    labels = [entry.labels("labels") for entry in entries]
    racks = sorted({label.get("rack", "") for label in labels})
    return Nodes(
        tuple(entry.name for entry in entries),
        total,
        total.copy(),
        np.array([not entry.flag("cordoned") for entry in entries], dtype=np.bool_),
        np.array([racks.index(label.get("rack", "")) for label in labels], dtype=np.int64),
        tuple(labels),
        tuple(frozenset(entry.texts("taints")) for entry in entries),
    )


def _assign(jobs: Sequence[_Job], nodes: Nodes) -> tuple[dict[JobKey, Assignment], FreeCapacity]:
    """Return assignments of the running jobs and the free capacity; reject a node that holds more than it has."""
    row_of = {name: row for row, name in enumerate(nodes.name)}
    room = FreeCapacity(nodes)
    assignments: dict[JobKey, Assignment] = {}
    for key, job in enumerate(jobs):
        workers, ps = (_on_nodes(job, running, row_of) for running in (job.running, job.ps_running))
        slots = room.take_workers(job.shape, workers)
        for node, count in ps:
            room.take_ps(job.shape, node, count)
        for node, _ in (*workers, *ps):
            lacking = [resource for resource in ResourceKind if room.free[resource, node] < 0]
            if lacking:
                short = (
                    "too little memory" if lacking[0] is ResourceKind.MEMORY else f"too few {lacking[0].name.lower()}"
                )
                raise UserError(
                    f"{job.where}: node '{nodes.name[node]}' has {short} for all that is said to run there; "
                    "correct the node or what runs on it."
                )
        if workers:
            assignments[JobKey(key)] = Assignment(workers, ps, slots)
    return assignments, room


def _on_nodes(job: _Job, running: Mapping[str, int], row_of: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    for name in running:
        if name not in row_of:
            raise UserError(f"{job.where}: it runs on '{name}', which is no node; {did_you_mean(name, row_of)}")
    return tuple(sorted((row_of[name], count) for name, count in running.items()))


def _refuse_duplicates(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"{kind} '{name}' is described twice; give each {kind} its own name.")
        seen.add(name)


# One mapping of a cluster file.


class _FileEntry:
    """A mapping of the file: returns checked values, with its place in the file in every error; rejects unknown
    keys."""

    def __init__(self, where: str, value: object, known: Sequence[str]) -> None:
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: found {_quote(value)}, expected a mapping with the keys {', '.join(known)}.")
        for key in value:
            if key not in known:
                raise UserError(f"{where}: the key '{key}' is unknown; {did_you_mean(str(key), known)}")
        self.where = where
        # A key without a value counts as absent.
        self._values = {key: found for key, found in value.items() if found is not None}
        self.name = ""

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def refusal(self, key: str, found: object, expected: str) -> UserError:
        return UserError(f"{self.where}, key '{key}': found {_quote(found)}, expected {expected}.")

    def entries(self, key: str, kind: str, known: Sequence[str]) -> list[_FileEntry]:
        entries = []
        for number, value in enumerate(self.items(key), 1):
            entry = _FileEntry(f"{kind} {number}", value, known)
            entry.name = entry._own_name()
            entry.where = f"{kind} '{entry.name}'"
            entries.append(entry)
        return entries

    def inner(self, key: str, known: Sequence[str]) -> _FileEntry:
        """Return a nested mapping, empty if it is absent."""
        return _FileEntry(f"{self.where}, key '{key}'", self._values.get(key, {}), known)

    def _own_name(self) -> str:
        name = self._values.get("name")
        if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
            raise self.refusal("name", name, "a name")
        if not str(name).strip().isprintable():
            raise self.refusal("name", name, "a name without line breaks or control characters")
        return str(name).strip()

    def number(self, key: str, default: float, *, above: bool = False, most: float = LARGEST) -> float:
        value = self._values.get(key, default)
        if _is_number(value) and value > most:
            raise self.refusal(key, value, f"a number of at most {most:,.0f}")
        if not _is_number(value) or value < 0 or (above and not value):
            raise self.refusal(key, value, "a number above 0" if above else "a number of at least 0")
        return float(value)

    def count(self, key: str, default: int, *, least: int = 1, most: int = _MOST) -> int:
        value = self._values.get(key, default)
        if not _is_number(value) or value != math.floor(value) or not least <= value <= most:
            raise self.refusal(key, value, f"a whole number from {least:,} to {most:,}")
        return int(value)

    def counts(self, key: str) -> dict[str, int]:
        """Return workers by node; nodes without workers are left out."""
        found = self._values.get(key, {})
        if not isinstance(found, Mapping):
            raise self.refusal(key, found, "a mapping of node to number of workers")
        inner = _FileEntry(f"{self.where}, key '{key}'", found, list(found))
        return {str(node): count for node in found if (count := inner.count(node, 0, least=0))}

    def cpus(self, key: str, default: int) -> int:
        """Return thousandths of a CPU; `default`, already in thousandths, if the key is absent."""
        return round(self.number(key, 0.0, most=_MOST) * MILLI) if key in self else default

    def bytes(self, key: str, default: int) -> int:
        value = self._values.get(key, default)
        match = _BYTES.fullmatch(value) if isinstance(value, str) else None
        if match and match[2] in _SUFFIXES:
            value = float(match[1]) * _SUFFIXES[match[2]]
        if not _is_number(value) or not 0 <= value <= _UNCOUNTED_BYTES:
            raise self.refusal(key, value, "bytes, like 64Gi, 512Mi or a plain number")
        return int(value)

    def flag(self, key: str) -> bool:
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self.refusal(key, value, "true or false")
        return value

    def items(self, key: str) -> list[Any]:
        value = self._values.get(key, [])
        if not isinstance(value, list | tuple):
            raise self.refusal(key, value, "a list")
        return list(value)

    def texts(self, key: str) -> list[str]:
        for value in self.items(key):
            if not isinstance(value, str):
                raise self.refusal(key, value, "a list of texts")
        return self.items(key)

    def labels(self, key: str) -> dict[str, str]:
        found = self._values.get(key, {})
        if not isinstance(found, Mapping):
            raise self.refusal(key, found, "a mapping of label to value")
        return {str(name): str(value) for name, value in found.items()}


def _is_number(value: Any) -> bool:
    # Not math.isfinite: a whole number may be too large for it.
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _quote(value: object) -> str:
    if value is None:
        return "nothing"
    text = str(value)[:40]
    return text if isinstance(value, int | float) and not isinstance(value, bool) else repr(text)
