"""Generated docs: `docs/settings.md` from the tree of settings, `docs/permissions.md` from the uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sterna.backends.kubernetes.api.rbac import Scope, Use, Who, all_uses
from sterna.settings import SettingEntry, entries

_TITLES = {
    "operator": "The operator: `sterna operator`",
    "monitor": "The monitor: `sterna monitor`",
    "image": "The image",
    "definitions": "Definitions",
    "install": "What is installed beside them",
}

_HEAD = """\
# Settings on Kubernetes

Everything that can be set, with its default. A setting has up to three names: a flag, an environment variable, and a
value of the [chart](kubernetes.md#install). A flag wins over a variable, and a variable over the default; the chart
sets variables. This page is made from `src/sterna/settings.py` by `python -m tests.deploy.render`.

Rules (`policy`, `placement`, `migration`, `cpu-share`, `reservation`) take parameters, as in `dragon:patience=60`; each
kind has a page of its own: [policies](policies/README.md), [placements](placements.md), [migrations](migrations.md),
[CPU shares](cpu-shares.md), [reservations](reservations.md).
"""


def settings_page() -> str:
    parts = [_HEAD]
    for folder, title in _TITLES.items():
        mine = [each for each in entries() if each.path[0] == folder]
        flagged = [each for each in mine if each.has_flag]
        only_chart = [each for each in mine if not each.has_flag]
        parts.append(f"## {title}\n")
        if flagged:
            parts.append("\n".join(_flags(flagged)) + "\n")
        if flagged and only_chart:
            parts.append("Only in the chart:\n")
        if only_chart:
            parts.append("\n".join(_values(only_chart)) + "\n")
    return "\n".join(parts)


def _flags(found: list[SettingEntry]) -> Iterator[str]:
    yield "| flag | default | variable | value of the chart | meaning |"
    yield "|---|---|---|---|---|"
    for each in found:
        flag = each.flag.replace("/", "`, `")
        typed = f"{flag} {each.metavar}" if each.metavar else flag
        variables = ", ".join(f"`{name}`" for name in (each.environment, *each.aliases))
        yield f"| `{typed}` | {_format_default(each.default)} | {variables} | {_code(each.value)} | {_meaning(each)} |"


def _values(found: list[SettingEntry]) -> Iterator[str]:
    yield "| value of the chart | default | meaning |"
    yield "|---|---|---|"
    for each in found:
        yield f"| {_code(each.value)} | {_format_default(each.default)} | {_meaning(each)} |"


def _meaning(each: SettingEntry) -> str:
    """Help texts end with the default where it is not a plain value; a table has room to say so in words."""
    words, _, usual = each.words.partition("  [default: ")
    return f"{words} If empty: {usual.removesuffix(']')}." if usual else words


def _format_default(value: Any) -> str:
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


_PERMISSIONS = """\
# What Sterna may do in a cluster

Two service accounts, each with the rights that it uses and no others. The roles in `deploy/sterna.yaml` and in the
chart are made from the table in `src/sterna/backends/kubernetes/api/rbac.py`, and so is this page
(`python -m tests.deploy.render`). Tests compare the table with what the code sends, both ways. Neither account may
read secrets, or grant rights to anybody.

Resources that a cluster does not have (TFJob, PyTorchJob, MPIJob, SharePod) are granted all the same, so that they can
be installed later; a role that names an unknown resource does no harm. What is marked as fenced is refused, whatever
the role says, to a replica that does not hold the Lease: see [the fence](kubernetes.md#the-fence).
"""


def permissions_page() -> str:
    parts = [_PERMISSIONS]
    for who in Who:
        lines = ["| what | verbs | where | what for |", "|---|---|---|---|"]
        lines += [_use(use) for use in all_uses() if use.who is who]
        parts.append(f"## `sterna-{who.value}`\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _use(use: Use) -> str:
    group = f" (`{use.resource.group}`)" if use.resource.group else ""
    where = "everywhere" if use.scope is Scope.CLUSTER else "its own namespace"
    where += f", only `{use.only_name}`" if use.only_name else ""
    fence_rules = "; fenced" if use.is_fenced else ""
    return f"| `{use.target}`{group} | {', '.join(use.verbs)} | {where} | {use.why}{fence_rules} |"
