"""Every module has a docstring and a specific name."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from tests.style.source import Source

VAGUE = frozenset({"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "base", "core"})
"""Names that fit any content."""

SHORTEST_DOCSTRING = 20


def test_every_module_has_a_docstring(sources: list[Source]) -> None:
    silent = [source.path for source in sources if len(ast.get_docstring(source.tree) or "") < SHORTEST_DOCSTRING]
    assert silent == []


def test_no_module_has_a_vague_name(sources: list[Source]) -> None:
    vague = [source.path for source in sources if VAGUE & set(PurePosixPath(source.path).with_suffix("").parts)]
    assert vague == []


def test_no_function_s_docstring_only_repeats_its_name(sources: list[Source]) -> None:
    found = [
        f"{source.path}::{node.name}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and _words(ast.get_docstring(node) or "-") == _words(node.name)
    ]
    assert found == []


def _words(text: str) -> list[str]:
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in text)
    return spaced.replace("_", " ").replace(".", " ").lower().split()
