"""The journal: an append-only record of rounds, from which any of them can be decided again.

One JSON document a line. The first line says what wrote it and which rules decided; a `world` line holds what seldom
changes (nodes, shapes, curves) and is repeated only when that does; every other line is a round: what was known, what
was decided and why. Reading is lazy, so a journal may be larger than memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from sterna.errors import UserError
from sterna.model.cluster import Home, Nodes, Shape, Shapes
from sterna.model.plan import Action, Decision, Kind, Mark
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot, WrittenJobs
from sterna.model.speedup import Curves

VERSION = 1

_INTS = ("key", "priority", "minimum", "maximum", "request", "workers", "shape", "curve", "promotions")
_FLOATS = ("submit", "remaining", "first_start", "waiting_since", "attained", "executed")
_SUMS = ("free_units", "held_units", "least_units", "widest", "is_rigid", "restart_seconds")


class Opening(msgspec.Struct, tag="journal", tag_field="line"):
    version: int
    policy: str
    placement: str


class World(msgspec.Struct, tag="world", tag_field="line"):
    """What seldom changes."""

    node: list[str]
    capacity: list[list[int]]
    rack: list[int]
    labels: list[dict[str, str]]
    taints: list[list[str]]
    shapes: list[dict[str, Any]]
    curves: list[list[float]]


class RoundLine(msgspec.Struct, tag="round", tag_field="line"):
    round: int
    now: float
    name: list[str]
    ints: dict[str, list[int]]
    floats: dict[str, list[float | None]]
    """None stands for never."""
    sums: dict[str, float]
    last_action: float | None
    finished_service: list[float]
    free: list[list[int]]
    is_open: list[bool]
    shared: list[tuple[int, int, int]]
    homes: list[tuple[int, Any]]
    actions: list[tuple[str, int, int, Any, Any, str]]
    until: float | None
    reasons: list[tuple[str, str]]
    """Job and sentence."""


_decoder = msgspec.json.Decoder(Opening | World | RoundLine)


@dataclass(frozen=True)
class Round:
    """One recorded round, as it was."""

    number: int
    snapshot: Snapshot
    actions: tuple[Action, ...]
    until: float
    reasons: tuple[tuple[str, str], ...]


class JournalWriter:
    """Writes rounds to a new file. Use it as a context manager."""

    def __init__(self, path: str | Path, *, policy: str, placement: str) -> None:
        try:
            self._file: BinaryIO = Path(path).open("wb")  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise UserError(f"The journal '{path}' cannot be written: {error.strerror}; choose another file.") from None
        self._encoder = msgspec.json.Encoder()
        self._world: World | None = None
        self._rounds = 0
        self._put(Opening(VERSION, policy, placement))

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        world = _world_of(snapshot)
        if world != self._world:
            self._put(world)
            self._world = world
        self._put(_round_of(self._rounds, snapshot, decision))
        self._rounds += 1

    def _put(self, line: Opening | World | RoundLine) -> None:
        self._file.write(self._encoder.encode(line) + b"\n")


def _world_of(snapshot: Snapshot) -> World:
    nodes = snapshot.nodes
    return World(
        list(nodes.name),
        nodes.capacity.tolist(),
        nodes.rack.tolist(),
        [dict(labels) for labels in nodes.labels],
        [sorted(taints) for taints in nodes.taints],
        [_shape_as_dict(shape) for shape in snapshot.shapes.rows],
        [list(row) for row in snapshot.curves.rows],
    )


def _shape_as_dict(shape: Shape) -> dict[str, Any]:
    return {
        "devices": shape.devices,
        "cpus": shape.cpus,
        "memory_bytes": shape.memory_bytes,
        "ps": shape.ps,
        "ps_cpus": shape.ps_cpus,
        "ps_memory_bytes": shape.ps_memory_bytes,
        "selector": [list(pair) for pair in shape.selector],
        "tolerations": sorted(shape.tolerations),
    }


def _shape_of(fields: dict[str, Any]) -> Shape:
    selector = tuple((str(key), str(value)) for key, value in fields["selector"])
    return Shape(**{**fields, "selector": selector, "tolerations": frozenset(fields["tolerations"])})


def _round_of(number: int, snapshot: Snapshot, decision: Decision) -> RoundLine:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    keys = set(jobs.key.tolist())
    return RoundLine(
        number,
        snapshot.now,
        [jobs.name_of(row) for row in range(len(jobs))],
        {name: getattr(jobs, name).tolist() for name in _INTS},
        {name: [_finite(value) for value in getattr(jobs, name).tolist()] for name in _FLOATS},
        {name: float(getattr(snapshot, name)) for name in _SUMS},
        _finite(snapshot.last_action),
        snapshot.finished_service.tolist(),
        nodes.free.tolist(),
        nodes.is_open.tolist(),
        [(node, device, free) for node, devices in nodes.shared.items() for device, free in devices.items()],
        [(key, home) for key, home in snapshot.homes.items() if key in keys],
        [(a.kind.name, a.key, a.row, a.before, a.after, a.mark.value) for a in decision.plan],
        _finite(decision.until),
        [(reason.job, reason.sentence) for reason in decision.reasons],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def read_opening(path: str | Path) -> Opening:
    """Which rules wrote this journal."""
    for _, line in _lines(Path(path)):
        if isinstance(line, Opening):
            return line
        break
    raise UserError(f"'{path}' is not a journal: its first line does not say so; write one with --journal.")


def read_rounds(path: str | Path) -> Iterator[Round]:
    """All rounds, one after the other."""
    read_opening(path)
    world: World | None = None
    for number, line in _lines(Path(path)):
        if isinstance(line, World):
            world = line
        elif isinstance(line, RoundLine):
            if world is None:
                raise UserError(
                    f"'{path}', line {number}: a round comes before the nodes it was decided on; the file is damaged."
                )
            try:
                yield _as_round(line, world)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                what = f"{type(error).__name__}: {error}"
                raise UserError(f"'{path}', line {number}: this round is damaged ({what}); write it anew.") from None


def read_round(path: str | Path, number: int) -> Round:
    last = -1
    for round_ in read_rounds(path):
        last = round_.number
        if last == number:
            return round_
    known = f"it has rounds 0 to {last}" if last >= 0 else "it has none"
    raise UserError(f"'{path}' has no round {number}: {known}.")


def _lines(path: Path) -> Iterator[tuple[int, Opening | World | RoundLine]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"The journal '{path}' cannot be read: {error.strerror}.") from None
    with file:
        for number, text in enumerate(file, start=1):
            try:
                yield number, _decoder.decode(text)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                if number > 1 and not text.endswith(b"\n"):
                    return  # the writer was killed in the middle of its last line: what came before stands
                raise UserError(
                    f"'{path}', line {number}: this is not a line of a journal ({error}); write it anew with --journal."
                ) from None


def _columns(line: RoundLine) -> dict[str, npt.NDArray[Any]]:
    whole = {name: np.array(values, dtype=np.int64) for name, values in line.ints.items()}
    return {
        **whole,
        **{name: np.array([NEVER if v is None else v for v in values]) for name, values in line.floats.items()},
    }


def _as_round(line: RoundLine, world: World) -> Round:
    shared: dict[int, dict[int, int]] = {}
    for node, device, free in line.shared:
        shared.setdefault(node, {})[device] = free
    nodes = Nodes(
        tuple(world.node),
        np.array(world.capacity, dtype=np.int64),
        np.array(line.free, dtype=np.int64),
        np.array(line.is_open, dtype=np.bool_),
        np.array(world.rack, dtype=np.int64),
        world.labels,
        [frozenset(taints) for taints in world.taints],
        shared,
    )
    finished = np.array(line.finished_service, dtype=np.float64)
    columns = _columns(line)
    barred = columns["maximum"] < columns["minimum"]
    sums = line.sums
    snapshot = Snapshot(
        line.now,
        Jobs(WrittenJobs(line.name, columns), barred if barred.any() else None),
        nodes,
        Shapes(tuple(_shape_of(fields) for fields in world.shapes)),
        Curves(tuple(tuple(row) for row in world.curves)),
        {JobKey(key): _home_of(home) for key, home in line.homes},
        int(sums["free_units"]),
        int(sums["held_units"]),
        int(sums["least_units"]),
        int(sums["widest"]),
        bool(sums["is_rigid"]),
        -NEVER if line.last_action is None else line.last_action,
        lambda: finished,
        sums["restart_seconds"],
    )
    actions = tuple(
        Action(Kind[kind], JobKey(key), row, _home_of(before), _home_of(after), Mark(mark))
        for kind, key, row, before, after, mark in line.actions
    )
    until = NEVER if line.until is None else line.until
    return Round(line.round, snapshot, actions, until, tuple((job, sentence) for job, sentence in line.reasons))


def _home_of(fields: Sequence[Any]) -> Home:
    workers, ps, slots = fields
    return Home(
        tuple((int(node), int(count)) for node, count in workers),
        tuple((int(node), int(count)) for node, count in ps),
        tuple(int(slot) for slot in slots),
    )
