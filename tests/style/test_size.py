"""Small files, small functions. What is larger is listed by name with its size, and the list may only shrink."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.style.source import Source

LONGEST_FUNCTION = 70
LONGEST_FILE = 500

ALLOWED: dict[str, int] = {}
"""`path` or `path::function`: its lines. Lower a number when the code shrinks; never raise one."""


def oversize(source: Source) -> Iterator[tuple[str, int]]:
    """Return the functions and files above the limits, with their lengths."""
    lines = len(source.text.splitlines())
    if lines > LONGEST_FILE:
        yield source.path, lines
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield f"{source.path}::{node.name}", length


def complaints(found: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Return new or grown code above the limits, and entries that are no longer needed."""
    grown = [f"{what} has {size} lines" for what, size in found.items() if size > allowed.get(what, 0)]
    shrunk = [
        f"{what} has {found.get(what, 'fewer')} lines now: lower or remove its entry"
        for what, size in allowed.items()
        if found.get(what, 0) < size
    ]
    return grown + shrunk


def test_no_function_and_no_file_is_too_long(sources: list[Source]) -> None:
    found = dict(entry for source in sources for entry in oversize(source))
    assert complaints(found, ALLOWED) == []


def test_the_ratchet_turns_one_way() -> None:
    assert complaints({}, {}) == []
    assert complaints({"a.py": 510}, {"a.py": 510}) == []
    assert complaints({"a.py": 510}, {}) == ["a.py has 510 lines"]
    assert complaints({"a.py": 511}, {"a.py": 510}) == ["a.py has 511 lines"]
    assert len(complaints({"a.py": 505}, {"a.py": 510})) == 1
    assert len(complaints({}, {"a.py": 510})) == 1
