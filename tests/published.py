"""Published traces and manifests for tests: small ones in `tests/data`, large ones optional beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parent / "data"
MANIFESTS = DATA / "manifests"
LARGE = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Whole traces, which are too large to ship or may not be redistributed."""


def large_file(name: str) -> Path:
    """Return the path of an optional file, or skip the test."""
    path = LARGE / name
    if not path.is_file():
        pytest.skip(f"optional data: {name} is not in {LARGE}")
    return path
