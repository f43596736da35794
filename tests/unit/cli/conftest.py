"""Fixtures of command tests: a small trace, and a runner of `sterna`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    # typer reads names that newer versions of click are about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from sterna.cli.main import main

TRACE = """job,submit_s,workers,duration_s,pool
a,0,4,100,red
b,1,4,50,red
c,2,2,10,blue
d,3,8,20,blue
"""


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Sterna = Callable[..., Run]


@pytest.fixture
def sterna(capsys: pytest.CaptureFixture[str]) -> Sterna:
    def run(*arguments: str | Path) -> Run:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path
