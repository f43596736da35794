"""A Python file with its path, text and syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    """Path from the root of the repository, with forward slashes."""
    text: str
    tree: ast.Module
