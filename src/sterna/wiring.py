"""Rules by name: finds the rules that are shipped, loads a user's own from a file, and makes `Rules` of them."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from sterna.engine.decide import Rules
from sterna.engine.gpu_partitions import TYPE_LABELS, gpu_types_in
from sterna.engine.registry import (
    CpuShare,
    Migration,
    Placement,
    Policy,
    Reservation,
    RuleInfo,
    RuleKind,
    find_rule,
    list_rules,
    make_rule,
)
from sterna.engine.user_policy import UserPolicy
from sterna.errors import UserError, did_you_mean
from sterna.model.cluster import Nodes
from sterna.model.growth import GrowthRule
from sterna.settings import DEFAULT_PLACEMENT, is_count_only

_PACKAGES = {
    RuleKind.POLICY: "sterna.policies",
    RuleKind.PLACEMENT: "sterna.placements",
    RuleKind.MIGRATION: "sterna.migrations",
    RuleKind.CPU_SHARE: "sterna.cpu_shares",
    RuleKind.RESERVATION: "sterna.reservations",
}

ByType = Mapping[str, tuple[str, str]]
"""GPU type to its own policy and placement."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Syntax of a Kubernetes label value."""


@cache
def discover() -> None:
    """Import every rule module that is shipped, so that each registers its rule."""
    for package in _PACKAGES.values():
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")


def rules_of(kind: RuleKind) -> list[RuleInfo]:
    """Return all registered rules of a kind, by name."""
    discover()
    return list_rules(kind)


def make_policy(spec: str) -> Policy:
    """Make the policy that `name:key=value` describes; one from a user's file is checked at every call."""
    discover()
    name, file = _resolve(spec), _file_of(spec)
    if file is None:
        made: Policy = make_rule(RuleKind.POLICY, name)
        return made
    with _blame(file):
        return UserPolicy(make_rule(RuleKind.POLICY, name), spec, str(file))


def preferred_placement(policy: str) -> str:
    """Return the `preferred_placement` that the policy's class names, else `DEFAULT_PLACEMENT`."""
    discover()
    info = find_rule(RuleKind.POLICY, _resolve(policy).partition(":")[0].strip())
    chosen: str = getattr(info.make, "preferred_placement", DEFAULT_PLACEMENT)
    return chosen


def is_registered_by_hand(spec: str) -> bool:
    """Return True for a policy that code outside Sterna registered, such as a cell of a notebook, not a file."""
    if _file_of(spec) is not None:
        return False
    return not find_rule(RuleKind.POLICY, spec.partition(":")[0].strip()).make.__module__.startswith("sterna.")


def make_placement(spec: str) -> Placement:
    discover()
    made: Placement = make_rule(RuleKind.PLACEMENT, _resolve(spec))
    return made


def make_migration(spec: str) -> Migration | None:
    """Make a migration rule; None for `none`, so that a round skips migration altogether."""
    discover()
    made: Migration = make_rule(RuleKind.MIGRATION, _resolve(spec))
    return None if spec.strip() == "none" else made


def make_cpu_share(spec: str) -> CpuShare | None:
    """Make a CPU share rule; None for `equal`, so that a round only resets shares that are not equal."""
    discover()
    made: CpuShare = make_rule(RuleKind.CPU_SHARE, _resolve(spec))
    return None if spec.strip() == "equal" else made


def growth_rule_of(rules: Rules) -> GrowthRule:
    """Return the growth rule that the migration was made for; backends compute growth categories with it."""
    rule: GrowthRule = getattr(rules.migration, "growth_rule", GrowthRule())
    return rule


def make_reservation(spec: str) -> Reservation | None:
    """Make a reservation rule; None for `none`, so that pending serving pods are ignored."""
    discover()
    if spec.strip() == "none":
        return None
    made: Reservation = make_rule(RuleKind.RESERVATION, _resolve(spec))
    return made


def make_rules(
    policy: str,
    placement: str,
    migration: str = "none",
    cpu_share: str = "equal",
    reservation: str = "serving",
    by_type: ByType | None = None,
) -> Rules:
    """Make all rules of a cluster; `by_type` adds a policy and a placement for single GPU types."""
    rules = Rules(
        make_policy(policy),
        make_placement(placement),
        make_migration(migration),
        make_cpu_share(cpu_share),
        make_reservation(reservation),
    )
    if not by_type:
        return rules
    if any(is_count_only(each) for each in (placement, *(each for _, each in by_type.values()))):
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
    """Parse `nvidia-a100=srjf` and the like; without `placement` each policy gets the one that it prefers."""
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
        found[type_] = policy, placement or preferred_placement(policy)
    return found


def unknown_types(rules: Rules, nodes: Nodes) -> list[str]:
    """Return a warning for each GPU type that has rules and no nodes: misspelt, or its nodes have not joined yet."""
    labelled = gpu_types_in(nodes)
    missing = [type_ for type_ in rules.by_type if type_ not in labelled]
    return [f"--policy-for {type_}: no node is of this type; {_suggest_type(type_, labelled)}" for type_ in missing]


def _suggest_type(type_: str, labelled: Sequence[str]) -> str:
    return did_you_mean(type_, labelled) if labelled else f"no node is labelled {' or '.join(TYPE_LABELS)}."


def _resolve(spec: str) -> str:
    """Replace a file name (`./mine.py` or `./mine.py:key=value`) by the name of the rule that the file registers on
    import; return other specs unchanged."""
    file = _file_of(spec)
    if file is None:
        return spec
    if not file.is_file():
        raise UserError(f"There is no file '{file}': give the path of a Python file that defines a rule.")
    before = {(kind, info.name) for kind in RuleKind for info in list_rules(kind)}
    module = import_file(file)
    new = [info.name for kind in RuleKind for info in list_rules(kind) if (kind, info.name) not in before]
    names = new or [
        info.name for kind in RuleKind for info in list_rules(kind) if info.make.__module__ == module.__name__
    ]
    if not names:
        raise UserError(f"'{file}' defines no rule: decorate a class in it with @policy(\"name\").")
    return names[0] + spec.partition(".py")[2]


def _file_of(spec: str) -> Path | None:
    path, dot, settings = spec.partition(".py")
    is_file = dot and (not settings or settings.startswith(":"))
    return Path(f"{path}.py") if is_file else None


def import_file(file: Path, what: str = "rule") -> ModuleType:
    """Import a user's file; `what` it has to define is for messages."""
    name = f"sterna_{what}_{re.sub(r'[^0-9a-zA-Z_]', '_', file.stem)}"
    loader = SourceFileLoader(name, str(file))  # keeps the path as given, for messages with a line number
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    with _blame(file, what):
        loader.exec_module(module)
    return module


@contextmanager
def _blame(file: Path, what: str = "rule") -> Iterator[None]:
    """Turn any exception of a user's file, `SystemExit` included, into a `UserError` that names the file."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"'{file}' cannot be used as a {what}: {type(error).__name__}: {error}.") from None
