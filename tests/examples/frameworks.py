"""Find a Python interpreter with a framework, for tests of examples: a configured one, ours, or the system's.

`STERNA_TORCH_PYTHON=/opt/torch/bin/python` names one; likewise for tensorflow, mpi4py and transformers. Frameworks are
large and Sterna needs none of them, so a test without its framework is skipped with a reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "/usr/bin/python3"
LENIENT = {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}
"""torchrun of torch 1.13 fails over its own defaults for these on Python 3.11; these values are equivalent."""


@cache
def python_with(framework: str) -> str | None:
    """Return a Python that has the framework and NumPy, which some examples need."""
    named = os.environ.get(f"STERNA_{framework.upper()}_PYTHON")
    for python in [named] if named else [sys.executable, SYSTEM]:
        code = f"import sys; from importlib.util import find_spec as f; sys.exit(not (f('{framework}') and f('numpy')))"
        if Path(python).exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return python
    return None


def needed(framework: str) -> str:
    """Return a Python with the framework, or skip the test."""
    python = python_with(framework)
    if python is None:
        name = f"STERNA_{framework.upper()}_PYTHON"
        pytest.skip(f"{framework} is not installed; install it, or name a Python that has it with {name}")
    return python


def program(python: str, name: str) -> str | None:
    """Return the path of a program of a Python's packages, such as mpirun."""
    found = Path(python).parent / name
    return str(found) if found.exists() else None
