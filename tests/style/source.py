"""A Python file as the rules of the house see it: its place, its text, its syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    """From the root of the repository, with forward slashes."""
    text: str
    tree: ast.Module
