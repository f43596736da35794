"""Where parts meet: rules by name, the nodes of a simulated cluster, and a world to run them in.

The only module that knows concrete rules and backends.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from sterna.engine.decide import Rules
from sterna.engine.gpu_partitions import TYPE_LABELS, types_in
from sterna.engine.registry import (
    CpuShare,
    Migration,
    Placement,
    Policy,
    Reservation,
    RuleInfo,
    RuleKind,
    find,
    known,
    make_rule,
)
from sterna.engine.user_policy import Guarded
from sterna.errors import UserError, did_you_mean
from sterna.model.cluster import MILLI, Nodes
from sterna.model.growth import GrowthRule
from sterna.settings import only_counts, placement_for

_PACKAGES = {
    RuleKind.POLICY: "sterna.policies",
    RuleKind.PLACEMENT: "sterna.placements",
    RuleKind.MIGRATION: "sterna.migrations",
    RuleKind.CPU_SHARE: "sterna.cpu_shares",
    RuleKind.RESERVATION: "sterna.reservations",
}

ByType = Mapping[str, tuple[str, str]]
"""Types of GPU that have rules of their own: policy and placement of each."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What a label of a node can have as its value."""

_MOST_NODES = 1_000_000
_MOST_DEVICES = 100_000


@cache
def discover() -> None:
    """Import every rule that is shipped, so that each enters itself."""
    for package in _PACKAGES.values():
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")


def rules_of(kind: RuleKind) -> list[RuleInfo]:
    discover()
    return known(kind)


def make_policy(spec: str) -> Policy:
    discover()
    name, file = _loaded(spec), _own_file(spec)
    if file is None:
        made: Policy = make_rule(RuleKind.POLICY, name)
        return made
    with _blaming(file):
        return Guarded(make_rule(RuleKind.POLICY, name), spec, str(file))


def is_registered_by_hand(spec: str) -> bool:
    """Return True for a policy that code outside Sterna registered, such as a cell of a notebook, not a file."""
    if _own_file(spec) is not None:
        return False
    return not find(RuleKind.POLICY, spec.partition(":")[0].strip()).make.__module__.startswith("sterna.")


def make_placement(spec: str) -> Placement:
    discover()
    made: Placement = make_rule(RuleKind.PLACEMENT, _loaded(spec))
    return made


def make_migration(spec: str) -> Migration | None:
    """None for `none`: then no round spends anything on moves."""
    discover()
    made: Migration = make_rule(RuleKind.MIGRATION, _loaded(spec))
    return None if spec.strip() == "none" else made


def make_cpu_share(spec: str) -> CpuShare | None:
    """None for `equal`: shares are looked at only where some job does not have an equal one."""
    discover()
    made: CpuShare = make_rule(RuleKind.CPU_SHARE, _loaded(spec))
    return None if spec.strip() == "equal" else made


def growth_rule_of(rules: Rules) -> GrowthRule:
    """How a world should find growth categories, so that the migration sees those that it was made for."""
    rule: GrowthRule = getattr(rules.migration, "growth_rule", GrowthRule())
    return rule


def make_reservation(spec: str) -> Reservation | None:
    """None for `none`: then serving pods are left to themselves."""
    discover()
    if spec.strip() == "none":
        return None
    made: Reservation = make_rule(RuleKind.RESERVATION, _loaded(spec))
    return made


def make_rules(
    policy: str,
    placement: str,
    migration: str = "none",
    cpu_share: str = "equal",
    reservation: str = "serving",
    by_type: ByType | None = None,
) -> Rules:
    rules = Rules(
        make_policy(policy),
        make_placement(placement),
        make_migration(migration),
        make_cpu_share(cpu_share),
        make_reservation(reservation),
    )
    if not by_type:
        return rules
    if any(only_counts(each) for each in (placement, *(each for _, each in by_type.values()))):
        raise UserError(
            "The placement 'none' only counts devices and cannot keep GPU types apart: leave out --policy-for, or "
            "choose a placement that finds nodes, such as stay."
        )
    own = {
        type_: replace(rules, policy=make_policy(theirs), placement=make_placement(where))
        for type_, (theirs, where) in by_type.items()
    }
    return replace(rules, by_type=own)


def rules_by_type(texts: Iterable[str], placement: str | None = None) -> dict[str, tuple[str, str]]:
    """From `nvidia-a100=srjf` and the like; a policy gets the placement that it was made for if none is chosen."""
    found: dict[str, tuple[str, str]] = {}
    for text in texts:
        type_, equals, policy = (part.strip() for part in text.partition("="))
        if not equals or not policy:
            raise UserError(f"--policy-for {text}: write TYPE=POLICY, such as nvidia-a100=srjf.")
        if not _LABEL_VALUE.fullmatch(type_):
            raise UserError(
                f"--policy-for {text}: no label of a node can have the value '{type_}'; write the type as the label of "
                "the nodes has it, such as nvidia-a100."
            )
        if type_ in found:
            raise UserError(f"--policy-for {text}: the type '{type_}' already has a policy; keep one of them.")
        found[type_] = policy, placement or placement_for(policy)
    return found


def unknown_types(rules: Rules, nodes: Nodes) -> list[str]:
    """A sentence for each type that has rules and no nodes: it may be misspelt, or its nodes are yet to come."""
    labelled = types_in(nodes)
    missing = [type_ for type_ in rules.by_type if type_ not in labelled]
    return [f"--policy-for {type_}: no node is of this type; {_near(type_, labelled)}" for type_ in missing]


def _near(type_: str, labelled: Sequence[str]) -> str:
    return did_you_mean(type_, labelled) if labelled else f"no node is labelled {' or '.join(TYPE_LABELS)}."


def _loaded(spec: str) -> str:
    """A rule may be named by its file: `./mine.py` or `./mine.py:key=value`. The file is run, the rule found by its
    decorator."""
    file = _own_file(spec)
    if file is None:
        return spec
    if not file.is_file():
        raise UserError(f"There is no file '{file}': give the path of a Python file that defines a rule.")
    before = {(kind, info.name) for kind in RuleKind for info in known(kind)}
    namespace = {"__name__": f"sterna_rule_{re.sub(r'[^0-9a-zA-Z_]', '_', file.stem)}", "__file__": str(file)}
    _run(file, namespace)
    new = [info.name for kind in RuleKind for info in known(kind) if (kind, info.name) not in before]
    names = new or [
        info.name for kind in RuleKind for info in known(kind) if info.make.__module__ == namespace["__name__"]
    ]
    if not names:
        raise UserError(f"'{file}' defines no rule: decorate a class in it with @policy(\"name\").")
    return names[0] + spec.partition(".py")[2]


def _own_file(spec: str) -> Path | None:
    path, dot, settings = spec.partition(".py")
    is_file = dot and (not settings or settings.startswith(":"))
    return Path(f"{path}.py") if is_file else None


def _run(file: Path, namespace: dict[str, str]) -> None:
    import sys
    import types

    module = types.ModuleType(namespace["__name__"])
    module.__dict__.update(namespace)
    sys.modules[namespace["__name__"]] = module
    with _blaming(file):
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """What goes wrong while a user's own rule is made is said to be of its file, even if that ends the program."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"'{file}' cannot be used as a rule: {type(error).__name__}: {error}.") from None


def simulated_nodes(spec: str, racks: int = 1) -> Nodes:
    """Nodes from `80x8` (80 nodes of 8 devices) or `10x8,5x4` (mixed), spread over racks in blocks."""
    sizes: list[tuple[int, int]] = []
    for part in spec.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*x\s*([0-9]{1,18})\s*", part)
        if not match:
            raise UserError(
                f"--nodes {spec}: '{part.strip()}' is not of the form COUNTxDEVICES; write 80x8 or 10x8,5x4."
            )
        sizes.append((int(match[1]), int(match[2])))
        if sizes[-1][1] > _MOST_DEVICES:
            raise UserError(
                f"--nodes {spec}: {sizes[-1][1]:,} devices on one node are more than any has; write at most "
                f"{_MOST_DEVICES:,}."
            )
        if not all(sizes[-1]):
            raise UserError(f"--nodes {spec}: a cluster needs at least one node with at least one device.")
    total_nodes = sum(count for count, _ in sizes)
    if total_nodes > _MOST_NODES:
        raise UserError(
            f"--nodes {spec}: {total_nodes:,} nodes are more than the simulator takes; write at most {_MOST_NODES:,}."
        )
    devices = [each for count, each in sizes for _ in range(count)]
    width = len(str(len(devices) - 1))
    total = np.zeros((3, len(devices)), dtype=np.int64)
    total[0] = np.array(devices) * MILLI
    rack = np.arange(len(devices)) * max(1, racks) // len(devices)
    names = tuple(f"node{number:0{width}d}" for number in range(len(devices)))
    return Nodes(names, total, total.copy(), np.ones(len(devices), dtype=np.bool_), rack)
