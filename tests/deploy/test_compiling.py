"""Extension modules: setup.py names every module with C types, and the package installs with and without them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.deploy.chart import ROOT
from tests.kernel_builds import MODULES

DATA = (".html", ".csv", ".json", ".yaml", ".typed", ".pxd")


def test_setup_compiles_every_module_with_c_types() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    named = [each for each in tree.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "MODULES"]
    assert sorted(ast.literal_eval(named[0].value)) == sorted(MODULES)


def test_every_file_of_c_types_belongs_to_a_module() -> None:
    assert [str(source) for source in MODULES.values() if not source.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "/bin/false"], ids=["with a compiler", "without a compiler"])
def test_wheel_holds_all_sources_and_data(compiler: str, tmp_path: Path) -> None:
    """Without a working compiler the wheel lacks the extension modules and nothing else."""
    if find_spec("Cython") is None:
        pytest.skip("Cython, which the build needs, is not installed: pip install cython")
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    _copy_project(tmp_path / "project")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    environment = {**os.environ, "CC": compiler}
    subprocess.run([*command, "--wheel-dir", str(tmp_path), "./project"], cwd=tmp_path, env=environment, check=True)
    names = set(ZipFile(next(tmp_path.glob("sterna-*.whl"))).namelist())
    sources = [file for file in (ROOT / "src").rglob("*") if file.suffix == ".py" or file.name.endswith(DATA)]
    expected = {str(file.relative_to(ROOT / "src")) for file in sources if "egg-info" not in str(file)}
    assert expected - names == set()
    extensions = [name for name in names if name.endswith((".so", ".pyd"))]
    assert len(extensions) == (len(MODULES) if compiler == "cc" else 0)


def _copy_project(folder: Path) -> None:
    folder.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
