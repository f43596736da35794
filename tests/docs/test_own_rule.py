"""The example policy of CONTRIBUTING runs, and mistakes in a user's policy name its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import ROOT, lay_out

TRIAL = """
import sys
sys.path[:0] = [{src!r}]
from sterna.backends.simulated.workload import workload_of
from sterna.backends.simulated.backend import SimulatedBackend
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import Rules
from sterna.model.snapshot import NEVER
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.wiring import make_placement, make_policy
from sterna.workloads.generate import Mix, poisson

for spec in ("./smallest.py", "./smallest.py:by=request"):
    rules = Rules(make_policy(spec), make_placement("stay"))
    trace = poisson(jobs=60, seed=3, mix=Mix(least=0.5, most=2.0))
    backend = SimulatedBackend(workload_of(trace), simulated_nodes("2x8"))
    loop = RoundLoop(backend, rules)
    loop.round()
    assert not loop.round().plan.actions, "deciding again on its own result changes something"
    loop.run()
    assert max(backend.finish) < NEVER
    print(type(rules.policy.policy).__name__)
"""


def test_the_example_of_contributing_runs_by_its_file_name(tmp_path: Path) -> None:
    lay_out(ROOT / "CONTRIBUTING.md", tmp_path)
    # In a process of its own, so that the rule does not enter the registry of the other tests.
    code = TRIAL.format(src=str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Smallest", "Smallest"]


@pytest.mark.parametrize(
    ("last_line", "sentence"),
    [
        pytest.param('raise ValueError("boom")', "ValueError: boom", id="it raises"),
        pytest.param("return 5", "answers with int; it must be a Target.", id="it answers with something else"),
        pytest.param("raise SystemExit(3)", "SystemExit: 3, smallest.py, line ", id="it ends the program"),
        pytest.param("return Target(target + 99)", "100 workers; it must be 0 or from", id="it gives too much"),
    ],
)
def test_mistake_in_a_user_policy_names_its_file(tmp_path: Path, last_line: str, sentence: str) -> None:
    lay_out(ROOT / "CONTRIBUTING.md", tmp_path)
    file = tmp_path / "smallest.py"
    file.write_text(file.read_text().replace("        return Target(target)", f"        {last_line}"))
    code = TRIAL.format(src=str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sterna.errors.UserError: The policy './smallest.py" in done.stderr
    assert sentence in done.stderr


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        pytest.param("raise SystemExit(3)", "SystemExit: 3.", id="the file ends the program"),
        pytest.param(
            "from sterna.rules import policy\nfrom dataclasses import dataclass\n\n\n"
            '@policy("mine")\n@dataclass(frozen=True)\nclass Mine:\n    must: int\n',
            "TypeError: ",
            id="it cannot be made",
        ),
    ],
)
def test_a_file_that_makes_no_rule_is_named(tmp_path: Path, lines: str, sentence: str) -> None:
    (tmp_path / "smallest.py").write_text(lines)
    code = TRIAL.format(src=str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sterna.errors.UserError: 'smallest.py' cannot be used as a rule: " in done.stderr
    assert sentence in done.stderr
