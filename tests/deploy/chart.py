"""The chart in `deploy/chart/sterna`, rendered to objects without Helm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.deploy.gotemplate import Templates

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart" / "sterna"
ONE_FILE = DEPLOY / "sterna.yaml"
NAMESPACE = "sterna-system"

Object = dict[str, Any]


class Name(NamedTuple):
    """Identity of an object."""

    kind: str
    namespace: str
    name: str


def default_values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return loaded


def rendered(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> dict[str, str]:
    """Render every template of the chart, by its name."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    root = {
        "Values": default_values() if values is None else values,
        "Release": {"Namespace": namespace, "Name": "sterna"},
        "Chart": {"AppVersion": str(about["appVersion"]), "Name": about["name"]},
    }
    folder = CHART / "templates"
    partials = {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.tpl"))}
    templates = Templates(partials)
    return {
        file.name: templates.render(file.name, file.read_text(encoding="utf-8"), root)
        for file in sorted(folder.glob("*.yaml"))
    }


def objects_in(text: str) -> dict[Name, Object]:
    """The objects of a YAML text; one that comes twice is an error, because only one of the two would be applied."""
    found: dict[Name, Object] = {}
    for each in _documents(text):
        meta = each["metadata"]
        name = Name(each["kind"], meta.get("namespace", ""), meta["name"])
        if name in found:
            raise ValueError(f"{name} comes twice")
        found[name] = each
    return found


def objects_of_chart(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> dict[Name, Object]:
    return objects_in("\n---\n".join(rendered(values, namespace).values()))


def objects_of_one_file() -> dict[Name, Object]:
    return objects_in(ONE_FILE.read_text(encoding="utf-8"))


def changed(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The values with one of them replaced, by its path with dots."""
    first, _, rest = path.partition(".")
    return {**values, first: changed(values[first], rest, value) if rest else value}


def definition_files() -> list[Path]:
    return sorted((DEPLOY / "crds").glob("*.yaml"))


def admission_files() -> list[Path]:
    """Return the admission policies, for rules that OpenAPI cannot express."""
    return sorted((DEPLOY / "crds" / "admission").glob("*.yaml"))


def _documents(text: str) -> Iterator[Object]:
    yield from (each for each in yaml.safe_load_all(text) if each)
