"""Prose and names of the package stay in plain technical English: counted, with limits that may only fall."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "sterna"

IDIOMS = re.compile(
    r"\b((no|some|every|any)body|whoever|told|tells?|says|said|so (many|much|long|often)|shall|anew)\b",
    re.IGNORECASE,
)
WEAK_OPENING = re.compile(r"(What|Whether|Where|Who|Whom|Whose|The same)\b")
PARTICIPLES = frozenset(
    [
        "told",
        "said",
        "held",
        "taken",
        "found",
        "kept",
        "known",
        "sent",
        "heard",
        "given",
        "seen",
        "shown",
        "written",
        "laid",
        "chosen",
    ]
)
NOT_PARTICIPLES = frozenset(["need", "seed", "feed", "shed", "embed", "exceed", "proceed", "speed", "fixed"])

MOST_IDIOMS_PER_1000_WORDS = 0.5
MOST_WEAK_OPENINGS = 0.04
MOST_MODULES = 18


class Text(NamedTuple):
    path: Path
    line: int
    words: str
    is_definition: bool
    """True for the docstring of a class or function."""


def docstring(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.value
    return None


def attribute_docstrings(node: ast.Module | ast.ClassDef) -> Iterator[ast.Constant]:
    for before, after in zip(node.body, node.body[1:], strict=False):
        value = after.value if isinstance(after, ast.Expr) else None
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Constant):
            yield value


def texts_of(path: Path) -> Iterator[Text]:
    """Docstrings of modules, classes, functions and attributes, and comments."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = docstring(node)
            if found is not None:
                yield Text(path, found.lineno, str(found.value), not isinstance(node, ast.Module))
            if isinstance(node, ast.Module | ast.ClassDef):
                yield from (Text(path, found.lineno, str(found.value), False) for found in attribute_docstrings(node))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string, False)


TEXTS = [text for path in sorted(PACKAGE.rglob("*.py")) for text in texts_of(path)]


def place(text: Text) -> str:
    return f"{text.path.relative_to(ROOT)}:{text.line}"


def test_comments_and_docstrings_avoid_the_idioms() -> None:
    words = sum(len(text.words.split()) for text in TEXTS)
    found = [f"{place(text)}: {idiom[0]}" for text in TEXTS for idiom in IDIOMS.finditer(text.words)]
    assert 1000 * len(found) / words <= MOST_IDIOMS_PER_1000_WORDS, "\n".join(found)


def test_docstrings_open_with_a_verb_or_a_noun_phrase() -> None:
    definitions = [text for text in TEXTS if text.is_definition]
    weak = [place(text) for text in definitions if WEAK_OPENING.match(text.words.strip())]
    assert len(weak) <= MOST_WEAK_OPENINGS * len(definitions), "\n".join(weak)


def test_a_class_or_type_name_is_defined_once() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        if (PACKAGE / "cli") in path.parents:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names = [node.targets[0].id]
            for name in names:
                if re.match(r"_?[A-Z][a-z]", name):
                    places[name].add(str(path.relative_to(PACKAGE)))
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


def is_participle(name: str) -> bool:
    """True for a bare participle. `planned_usage` is a noun, and names a value."""
    word = name.strip("_")
    return word in PARTICIPLES or (
        word.endswith("ed") and "_" not in word and len(word) > 3 and word not in NOT_PARTICIPLES
    )


def is_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for properties, whose names are nouns or adjectives."""
    return any("property" in (text := ast.unparse(each)) or "cached" in text for each in function.decorator_list)


def test_functions_are_not_named_by_a_participle() -> None:
    """Except `saved` of the agent, which training code calls."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name) and not is_value(node)
    ]
    assert [each for each in found if not each.startswith("src/sterna/agent/")] == []


def test_no_folder_has_too_many_modules() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    sizes = {folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders}
    assert {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_every_package_says_what_lives_in_it_and_what_does_not() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("__init__.py")
        if len((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split(". ")) < 2
        and len((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")) < 2
    ]
    assert bare == []
