"""Files of the repository and syntax trees of its Python, for the style tests."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.style.source import Source

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def sources() -> list[Source]:
    """Every Python file of the package and of the tests."""
    files = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
    return [_source(file) for file in files]


@pytest.fixture(scope="session")
def kept_files() -> list[Path]:
    """Files that are in the repository or about to be: tracked, or new and not ignored."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout, so the list of its files is unknown")
    return [path for path in (ROOT / name for name in found) if path.is_file()]


def _source(file: Path) -> Source:
    text = file.read_text(encoding="utf-8")
    return Source(file.relative_to(ROOT).as_posix(), text, ast.parse(text, str(file)))
