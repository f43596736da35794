"""The notebook in `examples/` runs from top to bottom, and is stored without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "compare_policies.ipynb"

RUN_CELLS = """
import ast, json, sys

cells = [cell for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"]
namespace = {"__name__": "__main__"}
for cell in cells:
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
        print(type(value).__name__)
print(namespace["own"].table("columns")["policy"])
"""
"""Runs the cells of a notebook as Jupyter does and prints the type of the value that each cell shows."""


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return cells


def test_notebook_is_stored_without_outputs() -> None:
    assert [cell for cell in _cells() if cell.get("outputs") or cell.get("execution_count")] == []


def test_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    # In a process of its own, so that its policy does not enter the registry of the other tests.
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}]\n{RUN_CELLS}", str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "['fifo:preempt=false', 'srjf', 'smallest']"
    assert (lines[0], lines[2], lines[3], lines[-2]) == ("Trace", "Figure", "Figure", "Figure")
