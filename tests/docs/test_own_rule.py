"""The example that CONTRIBUTING gives for a policy of one's own is a policy, and keeps what a policy must keep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.console import ROOT, lay_out

TRIAL = """
import sys
sys.path[:0] = [{src!r}]
from sterna.backends.simulated.workload import workload_of
from sterna.backends.simulated.world import SimulatedBackend
from sterna.control.controller import Controller
from sterna.engine.decide import Rules
from sterna.model.snapshot import NEVER
from sterna.wiring import make_placement, make_policy, simulated_nodes
from sterna.workloads.generate import Mix, poisson

for spec in ("./smallest.py", "./smallest.py:by=request"):
    rules = Rules(make_policy(spec), make_placement("stay"))
    trace = poisson(jobs=60, seed=3, mix=Mix(least=0.5, most=2.0))
    world = SimulatedBackend(workload_of(trace), simulated_nodes("2x8"))
    controller = Controller(world, rules)
    controller.round()
    assert not controller.round().plan.actions, "deciding again on its own result changes something"
    controller.run()
    assert max(world.finish) < NEVER
    print(type(rules.policy).__name__)
"""


def test_the_example_of_contributing_runs_by_its_file_name(tmp_path: Path) -> None:
    lay_out(ROOT / "CONTRIBUTING.md", tmp_path)
    # In a process of its own, so that the rule does not enter the registry of the other tests.
    code = TRIAL.format(src=str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Smallest", "Smallest"]
