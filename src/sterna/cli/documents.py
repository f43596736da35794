"""Descriptions that users write, YAML or JSON, as plain values. What they may hold is not judged here."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from sterna.errors import UserError
from sterna.workloads.text import read_text

_WANTED = "expected a description with nodes and jobs"


def read_document(path: str) -> Mapping[str, Any]:
    """The mapping in a file, or in stdin for `-`."""
    text = sys.stdin.read() if path == "-" else read_text(path, "a YAML or JSON file")
    found = _parsed(path, text)
    if not isinstance(found, Mapping):
        raise UserError(f"{path}: found {'nothing' if found is None else repr(str(found)[:40])}, {_WANTED}.")
    return found


def _parsed(path: str, text: str) -> object:
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{where}: this is not YAML ({error.problem}); {_WANTED}.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{path}: this is not YAML; {_WANTED}.") from None


def _loader() -> Any:
    """Plain values only; no key twice, because one would be lost; 1e6 is a number, as everywhere but in YAML 1.1."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    continue  # no key of a description; refused below or by whoever reads it
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key.value}' appears twice", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    exponent = re.compile(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", exponent, "-+0123456789")
    return Loader
