"""What the tests of traces share: files written on the spot, and the folder of published data, if it is there."""

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


@pytest.fixture
def published() -> Path:
    folder = Path(__file__).resolve().parents[4] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no published traces: {folder} does not exist")
    return folder
