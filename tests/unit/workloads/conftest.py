"""Files that tests of traces write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WriteFile = Callable[[str | bytes], Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(contents: str | bytes) -> Path:
        path = tmp_path / "t.csv"
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path

    return write
