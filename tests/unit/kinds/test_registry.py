"""The table of kinds in the documentation lists every registered kind as its record describes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.kinds.kind import Kind
from sterna.kinds.registry import all_kinds

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_the_row_of_a_kind_agrees_with_its_record(kind: Kind) -> None:
    page = (DOCS / "kubernetes-kinds.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[{kind.name}\]\(#([\w-]+)\) (.*)$", page, re.MULTILINE)
    assert row, f"docs/kubernetes-kinds.md has no row for {kind.name}"
    assert row[2].startswith(f"| `{kind.resource.api_version}` | {kind.summary} |")
    assert re.search(rf"^## {row[1].replace('-', ' ')}$", page, re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize("kind", [kind for kind in all_kinds() if kind.parse], ids=lambda kind: kind.name)
def test_page_of_manifests_names_every_kind_and_version(kind: Kind) -> None:
    page = (DOCS / "manifests.md").read_text(encoding="utf-8")
    assert kind.name in page
    assert [each for each in kind.api_versions if each not in page and each.partition("/")[2] not in page] == []
