"""Docs in step with the API and with manifests: every path, every field, and examples that work."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from sterna.kinds.loading import load
from sterna.kinds.training_job import TrainingJobSpec
from tests.fakes.http_server import Served

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_path_of_the_api_is_on_its_page(api: Served) -> None:
    page = (DOCS / "rest.md").read_text(encoding="utf-8")
    paths = api.ask("GET", "/api/v1/openapi.json").value["paths"]
    owed = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert len(owed) > 25
    assert [each for each in owed if not re.search(rf"{re.escape(each)}[`?]", page)] == []


def test_every_field_of_a_training_job_is_on_its_page() -> None:
    page = (DOCS / "manifests.md").read_text(encoding="utf-8")
    names = [field.encode_name for field in msgspec.structs.fields(TrainingJobSpec)]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_manifests_on_the_page_are_taken() -> None:
    page = (DOCS / "manifests.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert examples
    assert all(load(example, "docs").jobs for example in examples)
