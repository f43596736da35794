"""Migrations and CPU shares are described with all their parameters, each in a section of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.engine.registry import RuleInfo, RuleKind
from sterna.wiring import rules_of

PAGES = {RuleKind.MIGRATION: "migrations.md", RuleKind.CPU_SHARE: "cpu-shares.md"}


@pytest.mark.parametrize("info", [info for kind in PAGES for info in rules_of(kind)], ids=lambda info: info.name)
def test_every_rule_has_a_section_that_names_its_parameters(root: Path, info: RuleInfo) -> None:
    text = (root / "docs" / PAGES[info.kind]).read_text(encoding="utf-8")
    section = re.search(rf"^## `{re.escape(info.name)}`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/{PAGES[info.kind]} has no section '## `{info.name}`'"
    lacking = [parameter.name for parameter in info.parameters if f"`{parameter.name}`" not in section[0]]
    assert lacking == []
