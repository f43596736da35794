"""YAML and JSON files that users write, as plain values; their contents are not validated here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from sterna.errors import UserError
from sterna.workloads.text import DOCUMENT_BYTES, read_text, text_in

_WANTED = "expected a description with nodes and jobs"
_KIND = "a YAML or JSON file"


def read_source(path: str) -> str:
    """Read the text of a file, or of stdin for `-`."""
    if path == "-":
        return text_in(sys.stdin.buffer, path, _KIND, DOCUMENT_BYTES)
    return read_text(path, _KIND, DOCUMENT_BYTES)


def read_document(path: str) -> Mapping[str, Any]:
    """Read the mapping in a file, or in stdin for `-`."""
    from sterna.kinds.parsing.documents import read_documents

    first, *others = read_documents(read_source(path), path, _WANTED)
    if others:
        raise UserError(f"{others[0].where(())}: a second document begins here, {_WANTED}; put all into one.")
    if not isinstance(first.value, Mapping):
        raise UserError(f"{path}: found {str(first.value)[:40]!r}, {_WANTED}.")
    return first.value
