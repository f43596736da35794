"""Docs match the code: every rule has a page, every parameter is named, every package is on the map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.engine.registry import RuleInfo, RuleKind
from sterna.wiring import rules_of

SECTIONS = ("## When to use it", "## When not to", "## Parameters", "## Example", "## Where it comes from")


def _lacking(info: RuleInfo, text: str) -> list[str]:
    """Return the names that a page must have and lacks."""
    owed = [info.name, *info.aliases, *(parameter.name for parameter in info.parameters)]
    return [name for name in owed if f"`{name}`" not in text]


@pytest.mark.parametrize("info", rules_of(RuleKind.POLICY), ids=lambda info: info.name)
def test_every_policy_has_a_page_that_names_its_parameters(root: Path, info: RuleInfo) -> None:
    page = root / "docs" / "policies" / f"{info.name}.md"
    assert page.is_file(), f"write {page.relative_to(root)}"
    text = page.read_text(encoding="utf-8")
    assert _lacking(info, text) == []
    assert [section for section in SECTIONS if section not in text] == []


@pytest.mark.parametrize("info", rules_of(RuleKind.PLACEMENT), ids=lambda info: info.name)
def test_every_placement_is_described_with_its_parameters(root: Path, info: RuleInfo) -> None:
    text = (root / "docs" / "placements.md").read_text(encoding="utf-8")
    section = re.search(rf"^## `{re.escape(info.name)}`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/placements.md has no section '## `{info.name}`'"
    assert _lacking(info, section[0]) == []


def test_no_page_describes_a_policy_that_is_gone(root: Path) -> None:
    pages = {page.stem for page in (root / "docs" / "policies").glob("*.md")} - {"README"}
    assert pages == {info.name for info in rules_of(RuleKind.POLICY)}


def test_the_map_names_every_package_and_top_module(root: Path) -> None:
    layout = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = root / "src" / "sterna"
    folders = [child.name + "/" for child in package.iterdir() if (child / "__init__.py").is_file()]
    modules = [child.name for child in package.glob("*.py") if child.name != "__init__.py"]
    assert [name for name in sorted(folders + modules) if not re.search(rf"\b{re.escape(name)}", layout)] == []
