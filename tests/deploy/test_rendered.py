"""Generated files are up to date with all their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import sterna
from sterna.settings import SettingEntry, entries
from tests.deploy import chart, render
from tests.deploy.gotemplate import Templates

STALE = "run python -m tests.deploy.render"


@pytest.mark.parametrize(("path", "text"), list(render.written()), ids=lambda each: getattr(each, "name", ""))
def test_a_generated_file_is_in_step_with_its_source(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, STALE


def test_the_one_file_is_what_the_chart_yields() -> None:
    assert chart.ONE_FILE.read_text(encoding="utf-8") == render.one_file(), STALE


def test_the_one_file_and_the_chart_have_the_same_objects() -> None:
    """But for the namespace, which Helm makes itself (`--create-namespace`)."""
    one_file = chart.objects_of_one_file()
    del one_file[chart.Name("Namespace", "", chart.NAMESPACE)]
    assert one_file == chart.objects_of_chart()


def test_every_definition_is_installed_and_survives_an_uninstall() -> None:
    objects = chart.objects_of_one_file()
    for file in chart.definition_files():
        for source in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            found = objects[chart.Name("CustomResourceDefinition", "", source["metadata"]["name"])]
            assert found["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
            source["metadata"].setdefault("annotations", {})
            assert found == source


def test_rules_beyond_openapi_are_admission_policies_beside_the_definitions() -> None:
    objects = chart.objects_of_one_file()
    for file in chart.admission_files():
        assert chart.objects_in(file.read_text(encoding="utf-8")).items() <= objects.items()


def _value(values: dict[str, Any], each: SettingEntry) -> Any:
    for step in each.value.split("."):
        values = values[step]
    return values


@pytest.mark.parametrize("each", [each for each in entries() if each.is_in_chart], ids=lambda each: each.value)
def test_the_chart_has_every_setting_with_its_default(each: SettingEntry) -> None:
    assert _value(chart.default_values(), each) == each.default


def test_the_chart_knows_no_value_that_is_not_a_setting() -> None:
    known = {each.value for each in entries() if each.is_in_chart}

    def leaves(values: dict[str, Any], above: str = "") -> set[str]:
        found: set[str] = set()
        for key, value in values.items():
            path = f"{above}{key}"
            is_folder = any(other.startswith(f"{path}.") for other in known)
            found |= leaves(value, f"{path}.") if is_folder else {path}
        return found

    assert leaves(chart.default_values()) == known


def test_every_value_is_used_by_a_template() -> None:
    templates = "".join(file.read_text(encoding="utf-8") for file in (chart.CHART / "templates").iterdir())
    unused = [each.value for each in entries() if each.is_in_chart and f".Values.{each.value}" not in templates]
    assert unused == []


def test_the_chart_is_of_this_version() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (about["version"], about["appVersion"]) == (sterna.__version__, sterna.__version__)


def test_a_misspelt_value_is_refused_by_the_schema() -> None:
    schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    assert schema["properties"]["operator"]["properties"]["lease"]["additionalProperties"] is False
    assert schema["properties"]["operator"]["properties"]["policy"]["type"] == "string"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {{ .Values.x }}", "a: 1"),
        ("a: {{ .Values.name | quote }}", 'a: "n"'),
        ("{{- if .Values.on }}\nyes: 1\n{{- end }}\n", "\nyes: 1\n"),
        ("{{- if .Values.off }}\nyes: 1\n{{- else }}\nno: 1\n{{- end }}\n", "\nno: 1\n"),
        ("{{- with .Values.list }}\nl:\n  {{- toYaml . | nindent 2 }}\n{{- end }}", "\nl:\n  - a"),
        ('v: {{ .Values.empty | default "d" }}', "v: d"),
        ('{{ include "part" . }}', "p: n"),
        ("{{- /* silent */ -}} a", "a"),
    ],
)
def test_the_renderer_does_as_helm_does(text: str, expected: str) -> None:
    templates = Templates({"parts": '{{- define "part" -}}\np: {{ .Values.name }}\n{{- end }}'})
    values = {"x": 1, "name": "n", "on": True, "off": False, "list": ["a"], "empty": ""}
    assert templates.render("t", text, {"Values": values}) == expected


@pytest.mark.parametrize(
    "text", ["{{ .Values.x | trunc 3 }}", "{{ if .Values.x }}", "{{ end }}", "{{ lower .Values.x }}"]
)
def test_the_renderer_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no function|has no end|closes nothing"):
        Templates({}).render("t", text, {"Values": {"x": "y"}})


def test_large_numbers_are_refused_because_helm_would_write_an_exponent() -> None:
    with pytest.raises(ValueError, match="exponent"):
        Templates({}).render("t", "{{ .Values.x }}", {"Values": {"x": 2e6}})
