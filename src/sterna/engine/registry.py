"""Rules by name, with parameters that describe themselves.

A rule is a frozen dataclass in a file of its own; its decorator enters it here when the file is imported, its fields
become parameters of the command line, of the documentation and of error messages. Nothing else needs to know that it
exists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from sterna.errors import UserError, did_you_mean
from sterna.model.cluster import Assignment, Bools, Ints
from sterna.model.plan import NO_JOB, Action
from sterna.model.snapshot import NEVER, JobKey, Snapshot
from sterna.model.speedup import Floats
from sterna.parse_number import real, whole


class Target(NamedTuple):
    """What a policy wants: workers for each row, until when that stands, and whom it promoted."""

    workers: Ints
    until: float = NEVER
    promoted: Bools | None = None
    order: Callable[[], Ints] | None = None
    """Makes the rows in the order in which the policy asked them, for when not everything that it counted can be
    placed. None: by priority and submission."""
    is_strict: bool = False
    """Nobody may pass one that does not fit."""


class Policy(Protocol):
    """How many workers for each job. It counts devices and does not care where they are."""

    def __call__(self, snapshot: Snapshot, /) -> Target: ...


class Misfit(NamedTuple):
    """A job that could not be given all that the policy counted, and what it can have."""

    row: int
    fitted: int


class Placed(NamedTuple):
    actions: list[Action]
    misfits: list[Misfit]


class Placement(Protocol):
    """Which node for each worker; changes only."""

    def __call__(self, snapshot: Snapshot, target: Ints, /) -> Placed: ...


class Move(NamedTuple):
    """A running job that is to sit elsewhere, with as many workers, and the job that gains most by it."""

    row: int
    after: Assignment
    evictor: JobKey = NO_JOB


class Moves(NamedTuple):
    """What a migration wants, and when it wants to be asked again though nothing happened."""

    moves: Sequence[Move] = ()
    until: float = NEVER


class Migration(Protocol):
    """Which running workers move. It sees the instant as it will be once the plan is carried out."""

    def __call__(self, snapshot: Snapshot, /) -> Moves: ...


class CpuShares(NamedTuple):
    """What a share rule wants: a weight for each row, 1 for an equal share, and until when that stands."""

    weight: Floats
    until: float = NEVER


class CpuShare(Protocol):
    """How the CPUs of a shared node are divided, in place. It sees the instant as it will be."""

    def __call__(self, snapshot: Snapshot, /) -> CpuShares: ...


class Reserved(NamedTuple):
    """What a claim wants: room to be made at once, and for whom, by row; or else the instant without the room that is
    kept free; and until when that stands."""

    actions: list[Action]
    reserving: Mapping[int, str]
    offered: Snapshot
    until: float = NEVER


class Reservation(Protocol):
    """Who goes before all training."""

    def __call__(self, snapshot: Snapshot, /) -> Reserved: ...


class RuleKind(Enum):
    POLICY = "policy"
    PLACEMENT = "placement"
    MIGRATION = "migration"
    CPU_SHARE = "cpu_share"
    RESERVATION = "reservation"

    @property
    def words(self) -> str:
        """The kind as messages to users name it."""
        return self.value.replace("cpu_share", "CPU share")


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: type
    default: object
    help: str
    least: float
    choices: tuple[str, ...]


@dataclass(frozen=True)
class RuleInfo:
    """What is known of a rule without making one."""

    name: str
    aliases: tuple[str, ...]
    kind: RuleKind
    summary: str
    parameters: tuple[Parameter, ...]
    make: Callable[..., Any]


_rules: dict[RuleKind, dict[str, RuleInfo]] = {kind: {} for kind in RuleKind}

Rule = TypeVar("Rule")


def knob(default: Any, help: str, *, least: float = 0.0, choices: Sequence[str] = ()) -> Any:
    """A field of a rule that users may set."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "choices": tuple(choices)})


def policy(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _entering(RuleKind.POLICY, name, aliases)


def placement(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _entering(RuleKind.PLACEMENT, name, aliases)


def migration(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _entering(RuleKind.MIGRATION, name, aliases)


def cpu_share(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _entering(RuleKind.CPU_SHARE, name, aliases)


def reservation(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _entering(RuleKind.RESERVATION, name, aliases)


def _entering(kind: RuleKind, name: str, aliases: tuple[str, ...]) -> Callable[[type[Rule]], type[Rule]]:
    def enter(made: type[Rule]) -> type[Rule]:
        summary = " ".join((made.__doc__ or "").partition("\n\n")[0].split())
        parameters = tuple(_parameter(field) for field in dataclasses.fields(made) if field.metadata)  # type: ignore[arg-type]
        _rules[kind][name] = RuleInfo(name, aliases, kind, summary, parameters, made)
        return made

    return enter


def _parameter(field: dataclasses.Field[Any]) -> Parameter:
    meta = field.metadata
    return Parameter(field.name, type(field.default), field.default, meta["help"], meta["least"], meta["choices"])


def known(kind: RuleKind) -> list[RuleInfo]:
    """Every rule of a kind, by name."""
    return [_rules[kind][name] for name in sorted(_rules[kind])]


def find(kind: RuleKind, name: str) -> RuleInfo:
    for info in _rules[kind].values():
        if name == info.name or name in info.aliases:
            return info
    raise UserError(f"There is no {kind.words} '{name}': {did_you_mean(name, _rules[kind])}")


def make_rule(kind: RuleKind, spec: str) -> Any:
    """The rule that `name` or `name:key=value:key=value` describes."""
    name, *settings = spec.split(":")
    info = find(kind, name.strip())
    values: dict[str, object] = {}
    for setting in settings:
        if not setting.strip():
            raise UserError(f"In '{spec}' nothing follows a colon: write {info.name} or {info.name}:key=value.")
        key, equals, text = setting.partition("=")
        parameter = next((p for p in info.parameters if p.name == key.strip()), None)
        if parameter is None:
            hint = did_you_mean(key.strip(), [p.name for p in info.parameters])
            raise UserError(f"The {kind.words} '{info.name}' has no parameter '{key.strip()}': {hint}")
        if not equals:
            raise UserError(f"In '{spec}' the parameter '{key}' has no value: write {key}={_shown(parameter.default)}.")
        if parameter.name in values:
            raise UserError(f"In '{spec}' the parameter '{parameter.name}' is given twice: keep one of them.")
        values[parameter.name] = _parsed(info, parameter, text.strip())
    return info.make(**values)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(info: RuleInfo, parameter: Parameter, text: str) -> object:
    where = f"{info.name}:{parameter.name}={text}"
    if parameter.kind is bool:
        truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text.lower())
        if truth is None:
            raise UserError(f"In '{where}' the value must be true or false.")
        return truth
    if parameter.choices:
        if text not in parameter.choices:
            raise UserError(f"In '{where}' the value is unknown: {did_you_mean(text, parameter.choices)}")
        return text
    if parameter.kind in (int, float):
        return _number(where, parameter, text)
    return text


def _number(where: str, parameter: Parameter, text: str) -> float:
    noun = "a whole number" if parameter.kind is int else "a number"
    try:
        value = whole(text) if parameter.kind is int else real(text)
    except ValueError:
        raise UserError(f"In '{where}' the value must be {noun}.") from None
    if math.isnan(value) or value < parameter.least:
        raise UserError(f"In '{where}' the value must be {noun} of at least {parameter.least:g}.")
    return value
