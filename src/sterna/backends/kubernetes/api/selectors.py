"""Label selectors with the semantics of the API server: equality, sets, existence.

Field selectors are not supported, because their meaning differs between kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TERM = re.compile(
    r"\s*(?:"
    r"!\s*(?P<absent>[\w./-]+)"
    r"|(?P<set_key>[\w./-]+)\s+(?P<set_operator>in|notin)\s*\((?P<values>[^)]*)\)"
    r"|(?P<key>[\w./-]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)"
    r"|(?P<present>[\w./-]+)"
    r")\s*(?:,|$)"
)


class Requirement(NamedTuple):
    """One label must, or must not, have one of some values; without values: exist."""

    key: str
    values: frozenset[str] | None
    is_wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is self.is_wanted
        return (labels.get(self.key) in self.values) is self.is_wanted


class LabelSelector:
    """Conjunction of requirements; an empty selector matches everything."""

    def __init__(self, text: str) -> None:
        self._requirements = tuple(_requirements(text))

    def takes(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self._requirements)


def _requirements(text: str) -> list[Requirement]:
    """Parse a selector; raise `ValueError` if it is malformed."""
    found: list[Requirement] = []
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            raise ValueError(f"'{text}' is no label selector")
        found.append(_requirement(term))
        position = term.end()
    return found


def _requirement(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return Requirement(term["absent"], None, False)
    if term["set_key"]:
        values = frozenset(value.strip() for value in term["values"].split(","))
        return Requirement(term["set_key"], values, term["set_operator"] == "in")
    if term["key"]:
        return Requirement(term["key"], frozenset({term["value"]}), term["operator"] != "!=")
    return Requirement(term["present"], None, True)
