"""Where parts meet: rules by name, the nodes of a simulated cluster, and a world to run them in.

The only module that knows concrete rules and backends.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import traceback
from functools import cache
from pathlib import Path

import numpy as np

from sterna.engine.decide import Rules
from sterna.engine.registry import (
    Claim,
    Migration,
    Placement,
    Policy,
    RuleInfo,
    RuleKind,
    Share,
    Target,
    known,
    make_rule,
)
from sterna.errors import UserError
from sterna.model.cluster import MILLI, Nodes
from sterna.model.growth import GrowthRule
from sterna.model.snapshot import Snapshot

_PACKAGES = {
    RuleKind.POLICY: "sterna.policies",
    RuleKind.PLACEMENT: "sterna.placements",
    RuleKind.MIGRATION: "sterna.migrations",
    RuleKind.SHARE: "sterna.shares",
    RuleKind.CLAIM: "sterna.claims",
}

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
    name = _loaded(spec)
    made: Policy = make_rule(RuleKind.POLICY, name)
    return made if name == spec else Guarded(made, spec)


class Guarded:
    """A user's own policy: what goes wrong in it is said to be its own, with the line."""

    def __init__(self, policy: Policy, spec: str) -> None:
        self.policy, self._spec = policy, spec

    def __call__(self, snapshot: Snapshot) -> Target:
        try:
            wish = self.policy(snapshot)
            workers = np.asarray(wish.workers)
            least, most = snapshot.jobs.minimum, snapshot.jobs.maximum
            wrong = ((workers != 0) & ((workers < least) | (workers > most))).nonzero()[0]
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}"
            raise UserError(
                f"The policy '{self._spec}' failed ({what}, {where.filename}, line {where.lineno})."
            ) from None
        if len(wrong):
            row = wrong.item(0)
            raise UserError(
                f"The policy '{self._spec}' gives {snapshot.jobs.name_of(row)} {workers[row]} workers; it must be 0 or "
                f"from {least[row]} to {most[row]}."
            )
        return wish


def make_placement(spec: str) -> Placement:
    discover()
    made: Placement = make_rule(RuleKind.PLACEMENT, _loaded(spec))
    return made


def make_migration(spec: str) -> Migration | None:
    """None for `none`: then no round spends anything on moves."""
    discover()
    made: Migration = make_rule(RuleKind.MIGRATION, _loaded(spec))
    return None if spec.strip() == "none" else made


def make_share(spec: str) -> Share | None:
    """None for `equal`: shares are looked at only where some job does not have an equal one."""
    discover()
    made: Share = make_rule(RuleKind.SHARE, _loaded(spec))
    return None if spec.strip() == "equal" else made


def growth_rule_of(rules: Rules) -> GrowthRule:
    """How a world should find growth categories, so that the migration sees those that it was made for."""
    rule: GrowthRule = getattr(rules.migration, "growth_rule", GrowthRule())
    return rule


def make_claim(spec: str) -> Claim | None:
    """None for `none`: then serving pods are left to themselves."""
    discover()
    if spec.strip() == "none":
        return None
    made: Claim = make_rule(RuleKind.CLAIM, _loaded(spec))
    return made


def make_rules(
    policy: str, placement: str, migration: str = "none", share: str = "equal", claim: str = "serving"
) -> Rules:
    return Rules(
        make_policy(policy),
        make_placement(placement),
        make_migration(migration),
        make_share(share),
        make_claim(claim),
    )


def _loaded(spec: str) -> str:
    """A rule may be named by its file: `./mine.py` or `./mine.py:key=value`. The file is run, the rule found by its
    decorator."""
    path, colon, settings = spec.partition(".py")
    if not colon or (settings and not settings.startswith(":")):
        return spec
    file = Path(f"{path}.py")
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
    return names[0] + settings


def _run(file: Path, namespace: dict[str, str]) -> None:
    import sys
    import types

    module = types.ModuleType(namespace["__name__"])
    module.__dict__.update(namespace)
    sys.modules[namespace["__name__"]] = module
    try:
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"'{file}' cannot be used as a rule: {type(error).__name__}: {error}.") from None


def simulated_nodes(spec: str, racks: int = 1) -> Nodes:
    """Nodes from `80x8` (80 nodes of 8 devices) or `10x8,5x4` (mixed), spread over racks in blocks."""
    sizes: list[tuple[int, int]] = []
    for part in spec.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*x\s*(\d{1,9})\s*", part)
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
