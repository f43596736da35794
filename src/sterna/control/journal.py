"""The journal: an append-only record of rounds, from which any of them can be decided again.

One JSON document per line. The first line has the version and the rules; a `world` line holds nodes, shapes and curves
and is repeated only when they change; every other line is a round: what was known, what was decided and why. Reading is
lazy, so a journal may be larger than memory. Rounds are numbered, so a missing line is noticed; a truncated last line
is skipped with a notice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sterna.control.journal_validation import FLOATS, INTS, SUMS, check_line, check_room, check_world
from sterna.control.optional_columns import ExtraColumns, extra_columns, overlay_columns
from sterna.control.shadow_rules import Forecast, ShadowRound
from sterna.errors import UserError
from sterna.model.cluster import Assignment, Nodes, Shape, Shapes
from sterna.model.plan import NO_JOB, Action, ActionKind, Decision, Mark
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, ColumnSource, JobKey, Jobs, Snapshot
from sterna.model.speedup import Curves
from sterna.settings import is_count_only

VERSION = 2
"""2: the higher priority goes first; in 1 it was the lower."""


class Opening(msgspec.Struct, tag="journal", tag_field="line"):
    version: int
    policy: str
    placement: str
    migration: str = "none"
    cpu_share: str = "equal"
    reservation: str = "serving"
    shadow: str = ""
    """Policy of the shadow rules; empty: none."""
    knowledge: str = "true"
    """Knowledge model of the simulation; unless `true`, work and curves are estimates."""
    by_type: dict[str, tuple[str, str]] = {}
    """Policy and placement of GPU types with rules of their own."""

    @property
    def others(self) -> tuple[str, str, str, dict[str, tuple[str, str]]]:
        """Return the rules besides policy and placement, as `make_rules` takes them."""
        return self.migration, self.cpu_share, self.reservation, self.by_type


class ShadowLine(msgspec.Struct):
    """Plan of the shadow rules, and the forecasts of both plans."""

    actions: list[tuple[str, int, int, Any, Any, str]]
    until: float | None
    forecast: Forecast
    own: Forecast


class StaticFacts(msgspec.Struct, tag="world", tag_field="line"):
    """Nodes, shapes and curves, which seldom change."""

    node: list[str]
    capacity: list[list[int]]
    rack: list[int]
    labels: list[dict[str, str]]
    taints: list[list[str]]
    shapes: list[dict[str, Any]]
    curves: list[list[float]]


class RoundLine(msgspec.Struct, tag="round", tag_field="line", kw_only=True):
    round: int
    now: float
    name: list[str]
    ints: dict[str, list[int]]
    floats: dict[str, list[float | None]]
    """By column; None stands for `NEVER`."""
    sums: dict[str, float]
    last_action: float | None
    finished_service: list[float]
    free: list[list[int]]
    is_open: list[bool]
    shared: list[tuple[int, int, int]]
    assignments: list[tuple[int, Any]]
    actions: list[tuple[str, int, int, Any, Any, str]]
    until: float | None
    reasons: list[tuple[str, str]]
    """Job name and sentence."""
    world: int = 0
    """Number of `world` lines before it, so that a missing one is noticed; 0: unknown."""
    extras: ExtraColumns = {}
    terms: list[tuple[int, float | None, int]] = []
    """Index, CPU share and evictor of actions that have any."""
    prices: list[tuple[int, float]] = []
    """Index and price of actions that have one."""
    evicts_unsaved: bool = False
    last_event: float | None = None
    serving: list[tuple[str, dict[str, Any], float]] = []
    """Pending serving pods: name, needs, time since when."""
    serving_ranks: list[int] = []
    """Priorities of the serving pods, if they are not all 0."""
    shadow: ShadowLine | None = None


_decoder = msgspec.json.Decoder(Opening | StaticFacts | RoundLine)


@dataclass(frozen=True)
class Round:
    """One recorded round."""

    number: int
    snapshot: Snapshot
    actions: tuple[Action, ...]
    until: float
    reasons: tuple[tuple[str, str], ...]
    shadow: ShadowRound | None = None


class JournalWriter:
    """Writes rounds to a new file; overwrites one only on request. Use it as a context manager."""

    def __init__(
        self,
        path: str | Path,
        *,
        policy: str,
        placement: str,
        migration: str = "none",
        cpu_share: str = "equal",
        reservation: str = "serving",
        shadow: str = "",
        knowledge: str = "true",
        by_type: dict[str, tuple[str, str]] | None = None,
        overwrite: bool = False,
    ) -> None:
        self._path = path
        with self._telling():
            self._file: BinaryIO = Path(path).open(_mode(Path(path), overwrite))  # noqa: SIM115 (closed by __exit__)
        self._encoder = msgspec.json.Encoder()
        self._world: StaticFacts | None = None
        self._worlds = 0
        self._rounds = 0
        self._append(
            Opening(VERSION, policy, placement, migration, cpu_share, reservation, shadow, knowledge, by_type or {})
        )

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError) if error is not None else self._telling():
            self._file.close()

    def record(self, snapshot: Snapshot, decision: Decision, shadow: ShadowRound | None = None) -> None:
        world = _world_of(snapshot)
        if world != self._world:
            self._append(world)
            self._world = world
            self._worlds += 1
        line = _round_of(self._rounds, snapshot, decision)
        line.world = self._worlds
        if shadow is not None:
            line.shadow = ShadowLine(
                [_action_line(action) for action in shadow.actions],
                _finite(shadow.until),
                shadow.forecast,
                shadow.own,
            )
        self._append(line)
        self._rounds += 1

    def _append(self, line: Opening | StaticFacts | RoundLine) -> None:
        with self._telling():
            self._file.write(self._encoder.encode(line) + b"\n")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise UserError(
                f"The journal '{self._path}' exists already; choose another file, or add --overwrite to replace it."
            ) from None
        except OSError as error:
            raise UserError(
                f"The journal '{self._path}' cannot be written: {error.strerror}; choose another file."
            ) from None


def _mode(path: Path, overwrite: bool) -> Literal["wb", "xb"]:
    """Return the mode to open a journal: exclusive for files, since pipes and terminals cannot be overwritten."""
    return "wb" if overwrite or (path.exists() and not path.is_file()) else "xb"


def _world_of(snapshot: Snapshot) -> StaticFacts:
    nodes = snapshot.nodes
    return StaticFacts(
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
        **({"is_shared": True} if shape.is_shared else {}),
    }


def _shape_of(fields: dict[str, Any]) -> Shape:
    selector = tuple((str(key), str(value)) for key, value in fields["selector"])
    return Shape(**{**fields, "selector": selector, "tolerations": frozenset(fields["tolerations"])})


def _round_of(number: int, snapshot: Snapshot, decision: Decision) -> RoundLine:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    keys = set(jobs.key.tolist())
    return RoundLine(
        round=number,
        now=snapshot.now,
        name=[jobs.name_of(row) for row in range(len(jobs))],
        ints={name: getattr(jobs, name).tolist() for name in INTS},
        floats={name: [_finite(value) for value in getattr(jobs, name).tolist()] for name in FLOATS},
        sums={name: float(getattr(snapshot, name)) for name in SUMS},
        last_action=_finite(snapshot.last_action),
        finished_service=snapshot.finished_service.tolist(),
        free=nodes.free.tolist(),
        is_open=nodes.is_open.tolist(),
        shared=[(node, device, free) for node, devices in nodes.shared.items() for device, free in devices.items()],
        assignments=[(key, assignment) for key, assignment in snapshot.assignments.items() if key in keys],
        actions=[_action_line(action) for action in decision.plan],
        until=_finite(decision.until),
        reasons=[(reason.job, reason.sentence) for reason in decision.reasons],
        extras=extra_columns(jobs),
        terms=[
            (place, action.cpu_share, action.evictor)
            for place, action in enumerate(decision.plan)
            if action.cpu_share is not None or action.evictor != NO_JOB
        ],
        prices=[(place, action.price) for place, action in enumerate(decision.plan) if action.price],
        evicts_unsaved=snapshot.evicts_unsaved,
        last_event=_finite(snapshot.last_event),
        serving=[(pod.name, _shape_as_dict(pod.shape), pod.since) for pod in snapshot.serving],
        serving_ranks=[pod.rank for pod in snapshot.serving] if any(pod.rank for pod in snapshot.serving) else [],
    )


def _action_line(action: Action) -> tuple[str, int, int, Any, Any, str]:
    return action.kind.name, action.key, action.row, action.before, action.after, action.mark.value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


Notice = Callable[[str], None]
"""Receives notices about a journal that is damaged but readable."""


def read_opening(path: str | Path) -> Opening:
    """Return the rules that wrote this journal."""
    for _, line in _lines(Path(path)):
        if not isinstance(line, Opening):
            break
        if line.version != VERSION:
            raise UserError(
                f"'{path}' was written by another version of Sterna: its form is {line.version}, this one reads "
                f"{VERSION}; read it with that version, or write a new one with --journal."
            )
        return line
    raise UserError(f"'{path}' is not a journal: its first line does not say so; write one with --journal.")


def read_rounds(path: str | Path, notice: Notice | None = None) -> Iterator[Round]:
    """Yield all rounds in order."""
    counts_only = is_count_only(read_opening(path).placement)
    world: StaticFacts | None = None
    worlds, last = 0, -1
    for number, line in _lines(Path(path), notice):
        where = f"'{path}', line {number}"
        if isinstance(line, StaticFacts):
            with _telling_damage(where, "these nodes are"):
                check_world(line)
            world, worlds = line, worlds + 1
        elif isinstance(line, RoundLine):
            if world is None or line.world > worlds:
                raise UserError(
                    f"{where}: the line with the nodes that this round was decided on is missing; {_WHOLE_COPY}."
                )
            if last >= 0 and line.round != last + 1:
                raise UserError(
                    f"{where}: found round {line.round}, expected round {last + 1}, so lines are missing, repeated or "
                    f"out of order; {_WHOLE_COPY}."
                )
            last = line.round
            with _telling_damage(where, "this round is"):
                check_line(line, world, counts_only)
                recorded = _as_round(line, world)
                check_room(recorded.snapshot)
            yield recorded
        elif number > 1:
            raise UserError(f"{where}: another journal begins here; put each into a file of its own.")


_GZIP = b"\x1f\x8b"
_WHOLE_COPY = "get a whole copy of the file, or write a new one with --journal"


@contextmanager
def _telling_damage(where: str, what_is: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise UserError(f"{where}: {what_is} damaged ({error} is missing); {_WHOLE_COPY}.") from None
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise UserError(f"{where}: {what_is} damaged ({error}); {_WHOLE_COPY}.") from None


def read_round(path: str | Path, number: int) -> Round:
    first = last = -1
    cut: list[str] = []
    for round_ in read_rounds(path, cut.append):
        last = round_.number
        first = last if first < 0 else first
        if last == number:
            return round_
    known = f"it has rounds {first} to {last}" if last >= 0 else "it has none"
    advice = "choose one of these" if last >= 0 else "run longer, or choose another journal"
    raise UserError(f"'{path}' has no round {number}: {known}{', its last line is cut off' * bool(cut)}; {advice}.")


def _lines(path: Path, notice: Notice | None = None) -> Iterator[tuple[int, Opening | StaticFacts | RoundLine]]:
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise UserError(f"The journal '{path}' cannot be read: {_unreadable(error)}.") from None
    with file:
        for number, text in enumerate(file, start=1):
            try:
                line = _decoder.decode(text)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                if number > 1 and not text.endswith(b"\n"):
                    # The writer was killed in the middle of its last line; the lines before are valid.
                    if notice is not None:
                        notice(f"'{path}' ends in the middle of line {number}; what came before was read.")
                    return
                advice = _WHOLE_COPY if number > 1 else "give a file that was written with --journal"
                if text.startswith(_GZIP):
                    advice = "it is gzipped: unpack it with gunzip first"
                raise UserError(
                    f"'{path}', line {number}: this is not a line of a journal ({error}); {advice}."
                ) from None
            yield number, line


def _unreadable(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file; check the path, or write one with sterna simulate .. --journal FILE"
    if isinstance(error, IsADirectoryError):
        return "this is a folder; give one of the files in it"
    if isinstance(error, PermissionError):
        return "you may not read this file; change its permissions or choose another"
    return f"{getattr(error, 'strerror', None) or error}; choose another file"


def _columns(line: RoundLine) -> dict[str, npt.NDArray[Any]]:
    whole = {name: np.array(values, dtype=np.int64) for name, values in line.ints.items()}
    floats = {name: np.array([NEVER if v is None else v for v in values]) for name, values in line.floats.items()}
    return overlay_columns({**whole, **floats}, line.extras, len(line.name))


def _as_round(line: RoundLine, world: StaticFacts) -> Round:
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
    sums, ranks = line.sums, line.serving_ranks or [0] * len(line.serving)
    snapshot = Snapshot(
        line.now,
        Jobs(ColumnSource(line.name, columns), barred if barred.any() else None),
        nodes,
        Shapes(tuple(_shape_of(fields) for fields in world.shapes)),
        Curves(tuple(tuple(row) for row in world.curves)),
        {JobKey(key): _assignment_of(assignment) for key, assignment in line.assignments},
        int(sums["free_units"]),
        int(sums["held_units"]),
        int(sums["least_units"]),
        int(sums["max_workers"]),
        bool(sums["is_rigid"]),
        -NEVER if line.last_action is None else line.last_action,
        lambda: finished,
        sums["restart_seconds"],
        last_event=-NEVER if line.last_event is None else line.last_event,
        serving=tuple(
            ServingPod(name, _shape_of(fields), since, rank)
            for (name, fields, since), rank in zip(line.serving, ranks, strict=True)
        ),
        has_cpu_shares="cpu_share" in line.extras,
        evicts_unsaved=line.evicts_unsaved,
    )
    terms = {place: (cpu_share, JobKey(evictor)) for place, cpu_share, evictor in line.terms}
    prices = dict(line.prices)
    actions = tuple(
        _action_of(fields, *terms.get(place, ()))._replace(price=prices.get(place, 0.0))
        for place, fields in enumerate(line.actions)
    )
    reasons = tuple((job, sentence) for job, sentence in line.reasons)
    return Round(line.round, snapshot, actions, _instant(line.until), reasons, _shadow_of(line.shadow))


def _shadow_of(line: ShadowLine | None) -> ShadowRound | None:
    if line is None:
        return None
    actions = tuple(_action_of(fields) for fields in line.actions)
    return ShadowRound(actions, _instant(line.until), line.forecast, line.own)


def _instant(value: float | None) -> float:
    return NEVER if value is None else value


def _action_of(fields: tuple[str, int, int, Any, Any, str], *terms: Any) -> Action:
    kind, key, row, before, after, mark = fields
    return Action(ActionKind[kind], JobKey(key), row, _assignment_of(before), _assignment_of(after), Mark(mark), *terms)


def _assignment_of(fields: Sequence[Any]) -> Assignment:
    workers, ps, slots = fields
    return Assignment(
        tuple((int(node), int(count)) for node, count in workers),
        tuple((int(node), int(count)) for node, count in ps),
        tuple(int(slot) for slot in slots),
    )
