"""Deciding is a function: no clock, no randomness, no I/O. Checked on the syntax tree, so that no path escapes it.

What rules reach through functions of other packages is not followed; the import layers leave them none that could.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.style.source import Source

PURE = ("model", "engine", "policies", "placements", "migrations", "cpu_shares", "reservations")
"""Packages that decide; a new package is checked from its first file on."""

IMPURE_MODULES = frozenset(
    {"time", "datetime", "random", "uuid", "os", "logging", "secrets", "socket", "subprocess", "threading", "asyncio"}
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "globals"})
NUMPY = frozenset({"np", "numpy"})


def impurities(tree: ast.Module) -> Iterator[str]:
    """Return imports and calls that could make two decisions on one snapshot differ, or have side effects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: import {alias.name}" for alias in node.names if _is_impure(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (f"line {node.lineno}: from {name}" for name in names if _is_impure(name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"line {node.lineno}: {node.func.id}()"
        elif isinstance(node, ast.Attribute) and node.attr == "random" and _names(node.value) in NUMPY:
            yield f"line {node.lineno}: numpy.random"


def _is_impure(module: str) -> bool:
    return module.partition(".")[0] in IMPURE_MODULES or module.startswith("numpy.random")


def _names(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def test_rules_read_no_clock_draw_nothing_and_touch_no_file(sources: list[Source]) -> None:
    prefixes = tuple(f"src/sterna/{package}/" for package in PURE)
    checked = [source for source in sources if source.path.startswith(prefixes)]
    assert len(checked) > 20
    found = [f"{source.path}, {what}" for source in checked for what in impurities(source.tree)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from time import monotonic",
        "import os.path",
        "from datetime import datetime",
        "import numpy.random",
        "from numpy import random",
        "x = np.random.default_rng()",
        "open('x')",
        "def f():\n    print(1)",
        "def f():\n    import random",
    ],
)
def test_an_impure_line_is_found(line: str) -> None:
    assert list(impurities(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["import numpy as np", "from sterna.model.plan import Plan", "x.open()", "self.time = 3"]
)
def test_a_pure_line_is_let_through(line: str) -> None:
    assert not list(impurities(ast.parse(line)))
