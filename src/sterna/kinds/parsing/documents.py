"""YAML and JSON documents with the line of every value, so that an error can name it.

Plain values only: no tags, no duplicate keys. The caller checks what the values are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from sterna.errors import UserError

FieldPath = tuple[str | int, ...]
"""Path of a value from the top of its document: keys and positions."""

_MOST_VALUES = 500_000
"""More than any real file holds; bounds the expansion of anchors that refer to anchors."""
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|0b[01]+|0[0-7]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
MANIFESTS = "expected one or more manifests"


@dataclass(frozen=True)
class Document:
    """One of the documents in a file."""

    value: object
    source: str
    """Name of the file or request it came in."""
    lines: Mapping[FieldPath, int] = field(default_factory=dict)

    def where(self, place: FieldPath) -> str:
        """The source and, if known, the line of a value or of its nearest parent."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.lines:
                return f"{self.source}, line {self.lines[place[:end]]}"
        return self.source


def read_documents(text: str, source: str, wanted: str = MANIFESTS) -> list[Document]:
    """Every document in a text that is not empty; `wanted` completes the error sentence."""
    try:
        found = list(_compose(text, source, wanted))
    except yaml.MarkedYAMLError as error:
        as_json = _from_json(text, source)
        if as_json is not None:
            return [as_json]
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{source}{where}: this is not YAML ({error.problem}); {wanted}.") from None
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{source}: this is not YAML; {wanted}.") from None
    except RecursionError:
        raise UserError(f"{source}: this is nested too deeply to be read; {wanted}.") from None
    kept = [document for document in found if document.value is not None]
    if not kept:
        raise UserError(f"{source}: found nothing, {wanted}.")
    return kept


def _compose(text: str, source: str, wanted: str) -> Iterator[Document]:
    loader = _loader()(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            lines: dict[FieldPath, int] = {}
            if not _note_lines(node, (), lines):
                raise UserError(f"{source}: this holds too many values, or refers to itself; {wanted}.")
            yield Document(value, source, lines)
    finally:
        loader.dispose()


def _note_lines(node: Any, place: FieldPath, lines: dict[FieldPath, int]) -> bool:
    """Record the line of a value and of all below it; false if there are too many."""
    if len(lines) > _MOST_VALUES:
        return False
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, key.value if isinstance(key.value, str) else "?")
            if not _note_lines(value, inner, lines):
                return False
            lines[inner] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        return all(_note_lines(value, (*place, index), lines) for index, value in enumerate(node.value))
    return True


def _from_json(text: str, source: str) -> Document | None:
    """Parse JSON that is no YAML because it is indented with tabs."""
    try:
        return Document(json.loads(text), source)
    except ValueError:
        return None


@cache
def _loader() -> Any:
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Refuses duplicate keys, of which one would be lost, and reads numbers unlike YAML 1.1, to which 1e6 is text
        and 1:4 is sixty-four."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if isinstance(key.value, str) and key.value in seen and key.value != "<<":
                    what = f"the key '{key.value}' appears twice"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    numbers = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in numbers]
        for first, known in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(numbers[1], _FLOAT, "-+0123456789.")
    Loader.add_implicit_resolver(numbers[0], _INTEGER, "-+0123456789")
    return Loader
