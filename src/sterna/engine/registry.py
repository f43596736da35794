"""Registry of rules by kind and name, and the protocols that rules implement.

A rule is a frozen dataclass in a file of its own. Its decorator registers it when the file is imported; its fields
become the parameters in the command line, the documentation and error messages. No other module lists rules.
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
    """A policy's result: the number of workers of each row.

    `until` is the time at which to decide again without an event; `promoted` marks the rows that it promoted.
    """

    workers: Ints
    until: float = NEVER
    promoted: Bools | None = None
    order: Callable[[], Ints] | None = None
    """Returns all rows in the policy's order; called only if not all workers can be placed. None: by priority and
    submission."""
    is_strict: bool = False
    """If a job does not fit, no job behind it may start."""


class Policy(Protocol):
    """Sets the number of workers of each job. It counts devices and ignores nodes."""

    def __call__(self, snapshot: Snapshot, /) -> Target: ...


class Misfit(NamedTuple):
    """A job of which only `fitted` workers of its target can be placed."""

    row: int
    fitted: int


class Placed(NamedTuple):
    """A placement's result: the actions, and the jobs whose targets could not be placed completely."""

    actions: list[Action]
    misfits: list[Misfit]


class Placement(Protocol):
    """Assigns a node to each worker of the target; returns changes only."""

    def __call__(self, snapshot: Snapshot, target: Ints, /) -> Placed: ...


class Move(NamedTuple):
    """A new assignment of equal size for a running job; `evictor` is the job that gains most by it."""

    row: int
    after: Assignment
    evictor: JobKey = NO_JOB


class Moves(NamedTuple):
    """A migration's result: moves, and the time at which to decide again without an event."""

    moves: Sequence[Move] = ()
    until: float = NEVER


class Migration(Protocol):
    """Moves running jobs to other nodes. It is given the snapshot with the plan applied."""

    def __call__(self, snapshot: Snapshot, /) -> Moves: ...


class CpuShares(NamedTuple):
    """A CPU share rule's result: a weight for each row (1 is an equal share), and the time at which to decide again."""

    weight: Floats
    until: float = NEVER


class CpuShare(Protocol):
    """Divides the CPUs of shared nodes without moving jobs. It is given the snapshot with the plan applied."""

    def __call__(self, snapshot: Snapshot, /) -> CpuShares: ...


class Reserved(NamedTuple):
    """A reservation's result: either evictions to apply at once, or a snapshot without the reserved capacity."""

    actions: list[Action]
    reserving: Mapping[int, str]
    """The serving pod that each evicted row makes room for."""
    offered: Snapshot
    """The snapshot that the policy is given; used if `actions` is empty."""
    until: float = NEVER


class Reservation(Protocol):
    """Reserves capacity for serving pods before any training job is considered."""

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
    """Description of a registered rule."""

    name: str
    aliases: tuple[str, ...]
    kind: RuleKind
    summary: str
    parameters: tuple[Parameter, ...]
    make: Callable[..., Any]


_rules: dict[RuleKind, dict[str, RuleInfo]] = {kind: {} for kind in RuleKind}

Rule = TypeVar("Rule")


def knob(default: Any, help: str, *, least: float = 0.0, choices: Sequence[str] = ()) -> Any:
    """Declare a field of a rule as a parameter that users can set, with a minimum or a list of choices."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "choices": tuple(choices)})


def policy(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _register(RuleKind.POLICY, name, aliases)


def placement(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _register(RuleKind.PLACEMENT, name, aliases)


def migration(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _register(RuleKind.MIGRATION, name, aliases)


def cpu_share(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _register(RuleKind.CPU_SHARE, name, aliases)


def reservation(name: str, *aliases: str) -> Callable[[type[Rule]], type[Rule]]:
    return _register(RuleKind.RESERVATION, name, aliases)


def _register(kind: RuleKind, name: str, aliases: tuple[str, ...]) -> Callable[[type[Rule]], type[Rule]]:
    def register(rule: type[Rule]) -> type[Rule]:
        summary = " ".join((rule.__doc__ or "").partition("\n\n")[0].split())
        parameters = tuple(_parameter(field) for field in dataclasses.fields(rule) if field.metadata)  # type: ignore[arg-type]
        _rules[kind][name] = RuleInfo(name, aliases, kind, summary, parameters, rule)
        return rule

    return register


def _parameter(field: dataclasses.Field[Any]) -> Parameter:
    meta = field.metadata
    return Parameter(field.name, type(field.default), field.default, meta["help"], meta["least"], meta["choices"])


def list_rules(kind: RuleKind) -> list[RuleInfo]:
    """Return every registered rule of a kind, sorted by name."""
    return [_rules[kind][name] for name in sorted(_rules[kind])]


def find_rule(kind: RuleKind, name: str) -> RuleInfo:
    for info in _rules[kind].values():
        if name == info.name or name in info.aliases:
            return info
    raise UserError(f"There is no {kind.words} '{name}': {did_you_mean(name, _rules[kind])}")


def make_rule(kind: RuleKind, spec: str) -> Any:
    """Make the rule that `name` or `name:key=value:key=value` describes."""
    name, *settings = spec.split(":")
    info = find_rule(kind, name.strip())
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
            raise UserError(
                f"In '{spec}' the parameter '{key}' has no value: write {key}={_format_value(parameter.default)}."
            )
        if parameter.name in values:
            raise UserError(f"In '{spec}' the parameter '{parameter.name}' is given twice: keep one of them.")
        values[parameter.name] = _parse_value(info, parameter, text.strip())
    return info.make(**values)


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_value(info: RuleInfo, parameter: Parameter, text: str) -> object:
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
        return _parse_number(where, parameter, text)
    return text


def _parse_number(where: str, parameter: Parameter, text: str) -> float:
    noun = "a whole number" if parameter.kind is int else "a number"
    try:
        value = whole(text) if parameter.kind is int else real(text)
    except ValueError:
        raise UserError(f"In '{where}' the value must be {noun}.") from None
    if math.isnan(value) or value < parameter.least:
        raise UserError(f"In '{where}' the value must be {noun} of at least {parameter.least:g}.")
    return value
