"""Write all generated files: run `python -m tests.deploy.render` after changing one of their sources.

    settings tree (sterna/settings.py)           -> docs/settings.md, the chart's values and their schema, environments
    uses (sterna/backends/kubernetes/api/rbac.py)                -> docs/permissions.md, rules of roles and the fence
    definitions (deploy/crds)                                                                -> the chart's definitions
    the chart                                                                                      -> deploy/sterna.yaml

A test fails while any file differs from what would be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sterna.backends.kubernetes.api.rbac import RbacRule, Scope, Who, fence_rules, rules
from sterna.settings import SettingEntry, entries, entry
from tests.deploy import chart
from tests.deploy.pages import permissions_page, settings_page

_MADE = "made by python -m tests.deploy.render"
_ORDER = ("crds", "accounts", "roles", "fence", "network", "operator", "monitor")
_SWITCHES = {"tfjobs": "tfJobs", "trainingjobs": "trainingJobs"}


def written() -> Iterator[tuple[Path, str]]:
    """Every generated file of the chart and of the docs, and what belongs into it."""
    templates = chart.CHART / "templates"
    yield chart.CHART / "values.yaml", _values()
    yield chart.CHART / "values.schema.json", json.dumps(_schema(), indent=2) + "\n"
    yield templates / "_settings.tpl", _environments()
    yield templates / "_permissions.tpl", _permissions()
    yield templates / "crds.yaml", _definitions()
    yield chart.ROOT / "docs" / "settings.md", settings_page()
    yield chart.ROOT / "docs" / "permissions.md", permissions_page()


def one_file() -> str:
    """`deploy/sterna.yaml`: the namespace, then the chart as its defaults have it. Needs the files of `written`."""
    parts = chart.rendered()
    texts = [parts.pop(f"{name}.yaml").strip("\n") for name in _ORDER]
    if parts:
        raise ValueError(f"{', '.join(parts)}: give new templates a place in the order")
    return "\n---\n".join([_HEAD, *texts]) + "\n"


_HEAD = f"""\
# Everything that Sterna needs on a cluster, in one apply; what each part is for: docs/kubernetes.md.
# The chart in deploy/chart/sterna yields the same objects and can be adjusted; this file is {_MADE}.
apiVersion: v1
kind: Namespace
metadata:
  name: {chart.NAMESPACE}
  labels:
    app.kubernetes.io/name: sterna
    # The monitor reads folders of its node, which stricter levels refuse.
    pod-security.kubernetes.io/enforce: privileged"""


# Values and their schema.


def _values() -> str:
    lines = [f"# What can be set, with its default: {_MADE}.", "# The same with flags and variables: docs/settings.md."]
    above: tuple[str, ...] = ()
    for each in _in_chart():
        keys = each.value.split(".")
        for depth, key in enumerate(keys[:-1]):
            if keys[: depth + 1] != list(above[: depth + 1]):
                lines += ["", f"{'  ' * depth}{key}:"] if depth == 0 else [f"{'  ' * depth}{key}:"]
        above = tuple(keys[:-1])
        margin = "  " * (len(keys) - 1)
        lines += [f"{margin}# {each.words}", *_set(margin, keys[-1], each.default)]
    return "\n".join(lines) + "\n"


def _set(margin: str, key: str, value: Any) -> list[str]:
    text = yaml.safe_dump({key: value}, sort_keys=False, default_style=None).rstrip("\n")
    if isinstance(value, str):
        text = f"{key}: {json.dumps(value)}"
    elif isinstance(value, float) and value.is_integer():
        text = f"{key}: {int(value)}"
    return [f"{margin}{line}" for line in text.split("\n")]


def _schema() -> dict[str, Any]:
    """Return the schema with which Helm rejects a misspelt value."""
    root: dict[str, Any] = _folder()
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart sterna", **root}
    for each in _in_chart():
        *folders, last = each.value.split(".")
        place = root
        for folder in folders:
            place = place["properties"].setdefault(folder, _folder())
        place["properties"][last] = {**_kind(each.default), "description": each.words}
    root["properties"]["global"] = {"type": "object", "description": "Helm's own, for charts that contain this one."}
    return root


def _folder() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _kind(default: Any) -> dict[str, Any]:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return {"type": names[type(default)]}


def _in_chart() -> list[SettingEntry]:
    return [each for each in entries() if each.is_in_chart]


# Partials.


def _environments() -> str:
    """Return the settings as variables, so that a changed value restarts the affected pods."""
    parts = [f"{{{{- /* Settings as environment variables, {_MADE}. */ -}}}}"]
    for who in ("operator", "monitor"):
        lines = [
            f"- name: {each.environment}\n  value: {{{{ .Values.{each.value} | quote }}}}"
            for each in _in_chart()
            if each.path[0] == who and each.has_flag
        ]
        parts.append(_define(f"sterna.environment.{who}", "\n".join(lines)))
    return "\n".join(parts) + "\n"


def _permissions() -> str:
    parts = [f"{{{{- /* From the table of uses, {_MADE}. */ -}}}}"]
    scopes = {"cluster": Scope.CLUSTER, "namespace": Scope.OWN_NAMESPACE}
    for who in Who:
        for word, scope in scopes.items():
            text = "\n".join(_rule(rule) for rule in rules(who, scope))
            parts.append(_define(f"sterna.rules.{who.value}.{word}", text))
    parts.append(_define("sterna.fence.rules", "\n".join(_fence_rule(rule) for rule in fence_rules())))
    return "\n".join(parts) + "\n"


def _define(name: str, text: str) -> str:
    return f'{{{{- define "{name}" -}}}}\n{text}\n{{{{- end }}}}'


def _rule(rule: RbacRule) -> str:
    lines = [
        f"- apiGroups: [{json.dumps(rule.group) if not rule.group else rule.group}]",
        f"  resources: [{', '.join(rule.resources)}]",
    ]
    if rule.names:
        lease = entry("operator.lease.name")
        names = [f"{{{{ .Values.{lease.value} | quote }}}}" if each == lease.default else each for each in rule.names]
        lines.append(f"  resourceNames: [{', '.join(names)}]")
    return "\n".join([*lines, f"  verbs: [{', '.join(rule.verbs)}]"])


def _fence_rule(rule: RbacRule) -> str:
    group = json.dumps(rule.group) if not rule.group else rule.group
    return (
        f'- apiGroups: [{group}]\n  apiVersions: ["*"]\n  operations: [{", ".join(rule.verbs)}]\n'
        f"  resources: [{', '.join(rule.resources)}]"
    )


def _definitions() -> str:
    """The definitions, kept when the chart is uninstalled: with a definition all objects of its kind are deleted."""
    parts = []
    for file in [*chart.definition_files(), *chart.admission_files()]:
        text = file.read_text(encoding="utf-8").strip("\n")
        if "{{" in text:
            raise ValueError(f"{file.name}: '{{{{' would be taken for a template")
        text = _add_keep_policy(text) if file in chart.definition_files() else text
        parts.append(f"{{{{- if .Values.definitions.{_SWITCHES[file.stem]} }}}}\n---\n{text}\n{{{{- end }}}}")
    return "\n".join(parts) + "\n"


def _add_keep_policy(text: str) -> str:
    """A definition with Helm's mark that it is to stay."""
    mark = "helm.sh/resource-policy: keep"
    if "\n  annotations:\n" in text:
        return text.replace("\n  annotations:\n", f"\n  annotations:\n    {mark}\n", 1)
    return text.replace("\nmetadata:\n", f"\nmetadata:\n  annotations:\n    {mark}\n", 1)


def main() -> None:
    for path, text in written():
        path.write_text(text, encoding="utf-8")
    chart.ONE_FILE.write_text(one_file(), encoding="utf-8")
    print("deploy/sterna.yaml, the chart, docs/settings.md and docs/permissions.md are up to date.")


if __name__ == "__main__":
    main()
