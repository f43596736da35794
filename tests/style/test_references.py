"""References lead somewhere: paths, modules and links in the docs, and in docstrings and comments of the code."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.style.source import Source

FOLDERS = ("src", "docs", "tests", "examples", "deploy", ".ci")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*{{}},-]*[\w/*}}]")
MODULE_FILE = re.compile(r"(?<![\w/.-])[a-z_]+/(?:[\w]+/)*[\w]+\.pyi?\b")
MODULE = re.compile(r"(?<![\w./-])sterna(?:\.[A-Za-z_]\w*)+(?![\w/-]|\.\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NOT_MODULES = ("sterna.dev", "sterna.db")
"""The domain of annotations and the database of a local cluster, which look like modules."""


def _pages(root: Path) -> list[Path]:
    folders = ("docs", "examples", "tests", "deploy")
    return sorted([*root.glob("*.md"), *(page for folder in folders for page in (root / folder).rglob("*.md"))])


def _prose(source: Source) -> Iterator[str]:
    """Yield docstrings and comments; other strings are data."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield str(statement.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _dead_paths(root: Path, text: str) -> list[str]:
    found = {match.rstrip("/") for match in PATH.findall(text)}
    package = root / "src" / "sterna"
    folders = {child.name for child in package.iterdir() if child.is_dir()}
    dead = {path for path in found if not _is_placeholder(path) and not _exists(root, path)}
    for path in MODULE_FILE.findall(text):
        if path.partition("/")[0] in folders and not any(package.rglob(path)):
            dead.add(path)
    return sorted(dead)


def _is_placeholder(path: str) -> bool:
    """Return True for paths such as `docs/policies/NAME.md`."""
    return any(part.partition(".")[0].isupper() and part != "README.md" for part in path.split("/"))


def _exists(folder: Path, path: str) -> bool:
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
    if braces:
        return all(_exists(folder, braces[1] + choice + braces[3]) for choice in braces[2].split(","))
    return any(folder.glob(path)) if "*" in path else (folder / path).exists()


def _dead_modules(root: Path, text: str) -> list[str]:
    return sorted(
        {name for name in MODULE.findall(text) if not name.startswith(NOT_MODULES) and not _resolves(root, name)}
    )


def _resolves(root: Path, name: str) -> bool:
    """Follow packages and modules; what comes after a module must occur in it as a word."""
    path = root / "src" / "sterna"
    parts = name.split(".")[1:]
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts and (path / f"{parts[0]}.py").is_file():
        path /= f"{parts.pop(0)}.py"
    else:
        path /= "__init__.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return all(re.search(rf"\b{re.escape(part)}\b", text) for part in parts[:1]) and path.is_file()


def _anchors(page: Path) -> set[str]:
    titles = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def _dead_links(page: Path, text: str) -> list[str]:
    dead = []
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path)):
            dead.append(link)
    return dead


def test_paths_modules_and_links_of_the_docs_exist(root: Path) -> None:
    dead = {}
    for page in _pages(root):
        text = page.read_text(encoding="utf-8")
        found = [*_dead_paths(root, text), *_dead_modules(root, text), *_dead_links(page, FENCED.sub("", text))]
        if found and page.name != "CHANGELOG.md":
            dead[str(page.relative_to(root))] = found
    assert dead == {}


def test_paths_and_modules_in_docstrings_and_comments_exist(root: Path, sources: list[Source]) -> None:
    dead = {}
    for source in sources:
        prose = "\n".join(_prose(source))
        found = [*_dead_paths(root, prose), *_dead_modules(root, prose)]
        if found:
            dead[source.path] = found
    assert dead == {}


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("see `src/sterna/engine/decide.py`, docs/traces.md and tests/style/*.py", []),
        ("`src/sterna/engine/gone.py`", ["src/sterna/engine/gone.py"]),
        ("`engine/gone.py` beside `engine/decide.py`", ["engine/gone.py"]),
        ("`docs/policies/NAME.md`", []),
        ("examples/{kubernetes,gone}", ["examples/{kubernetes,gone}"]),
        ("`sterna.rules` has `sterna.rules.policy`, not `sterna.rules.nothing`", ["sterna.rules.nothing"]),
        ("sterna.engine.gone and sterna.dev/job", ["sterna.engine.gone"]),
    ],
)
def test_dead_references_are_found(root: Path, text: str, dead: list[str]) -> None:
    assert [*_dead_paths(root, text), *_dead_modules(root, text)] == dead
